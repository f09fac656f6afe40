"""Parser of the public Spot Advisor file: interruption frequency and savings of spot machines. Pure.

The form of the file (not documented, but read by many): ``ranges`` [{"index", "label"}], ``spot_advisor`` region ->
"Linux" -> instance type -> {"r": index into the ranges, "s": per cent below on-demand}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pricing.risk import AWS_BANDS
from providers.errors import UnreadableError
from providers.protocol import DroppedRow

SOURCE = "AWS Spot Advisor"
UNKNOWN_BAND = "an interruption band that is not known"
UNREADABLE_SAVING = "a saving that is not between 0 and 99 per cent"


@dataclass(frozen=True, slots=True)
class SpotAdvice:
    """The advice for one region, by instance type; only what could be read.

    ``as_of`` is the day the file was written, or that of fetching where the server does not state it.
    """

    bands: Mapping[str, str]
    savings: Mapping[str, int]
    dropped: tuple[DroppedRow, ...]
    as_of: date | None = None

    def date_of(self, instance_type: str) -> date | None:
        """Return the day of the type's band; None where it has no band."""
        return self.as_of if instance_type in self.bands else None


def read_advice(cloud: str, region: str, document: Any, instance_types: frozenset[str]) -> SpotAdvice:
    """Return the advice for these instance types in ``region``; empty where the file does not cover it.

    UnreadableError when the file is not of the form above.
    """
    labels, regions = _parts(cloud, document)
    bands, savings, dropped = {}, {}, []
    for name, entry in sorted((regions.get(region) or {}).get("Linux", {}).items()):
        if name not in instance_types:
            continue
        band, saving = labels.get(entry.get("r"), ""), entry.get("s")
        if band in AWS_BANDS:
            bands[name] = band
        else:
            dropped.append(DroppedRow(f"{region} {name}", UNKNOWN_BAND))
        if isinstance(saving, int) and 0 <= saving < 100:
            savings[name] = saving
        else:
            dropped.append(DroppedRow(f"{region} {name}", UNREADABLE_SAVING))
    return SpotAdvice(bands, savings, tuple(dropped))


def _parts(cloud: str, document: Any) -> tuple[Mapping[Any, str], Mapping[str, Any]]:
    try:
        labels = {item["index"]: item["label"] for item in document["ranges"]}
        regions = document["spot_advisor"]
        if not isinstance(regions, Mapping):
            raise TypeError
    except (KeyError, TypeError):
        raise UnreadableError(cloud, "the Spot Advisor file is not of the known form") from None
    return labels, regions
