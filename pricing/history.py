"""One observation of a price, of stock or of a score at one moment: what price history is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.money import UsdPerHour
from pricing.places import Market


@dataclass(frozen=True, slots=True)
class PricePoint:
    """What a source said of one machine type in one place at ``at`` (UTC, to the microsecond).

    ``usd_per_hour`` None is no price said; ``available`` is the share from 0 to 1 of the machines tried or asked
    for that could be had (1.0: all); ``score`` the cloud's own judgement, 0 to 1. At least one is not None.
    """

    at: datetime
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    usd_per_hour: UsdPerHour | None
    available: float | None
    score: float | None
    source: str

    @property
    def key(self) -> tuple[datetime, str, str, str, str, str, str]:
        """What one source says of one series at one moment is one point: a later one corrects it."""
        place = (self.cloud, self.region, self.zone or "", self.instance_type, self.market.value)
        return (self.at, *place, self.source)


def combined(points: Iterable[PricePoint]) -> tuple[PricePoint, ...]:
    """Points of the same key as one, in the order of their first: what the earlier leaves open the later says."""
    found: dict[tuple[datetime, str, str, str, str, str, str], PricePoint] = {}
    for point in points:
        first = found.setdefault(point.key, point)
        if first is not point:
            found[point.key] = replace(
                first,
                usd_per_hour=point.usd_per_hour if first.usd_per_hour is None else first.usd_per_hour,
                available=point.available if first.available is None else first.available,
                score=point.score if first.score is None else first.score,
            )
    return tuple(found.values())
