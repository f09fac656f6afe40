"""Decide where a job may run: allow and deny lists of clouds, regions, countries and groups of countries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema, model_serializer, model_validator

from pricing.places import Region
from router.jobs.fields import RefusedError, Spec, as_many, nearest_word, show_value

# Groups are unions of Region.residency_group: the EEA is the EU and three other countries.
_GROUPS = {"EU": {"EU"}, "EEA": {"EU", "EEA"}, "UK": {"UK"}}
_AREA = re.compile(r"[A-Z]{2,3}")
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?")


class PlaceRule(Spec):
    """One place, written as its token alone.

    It is a cloud (``aws``), a region (``aws/us-east-1``, ``us-east-1``), a country (``DE``) or a group (``EU``, ``EEA``
    with the EU in it, ``UK``).
    """

    token: str

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"token"}:
            value = value["token"]
        if not isinstance(value, str) or not _TOKEN.fullmatch(value.strip()):
            remedy = "write a cloud, cloud/region, a country such as DE, or EU, EEA, UK"
            raise RefusedError(f"{show_value(value)} is no place", remedy)
        return {"token": value.strip()}

    @model_serializer
    def _to_text(self) -> str:
        return self.token

    def __str__(self) -> str:
        return self.token

    @property
    def is_area(self) -> bool:
        """Return whether it names a country or a group, which a region of unknown country cannot satisfy."""
        return _AREA.fullmatch(self.token) is not None

    def covers(self, region: Region) -> bool:
        """Return whether the region lies in it; False where the region's country is needed and unknown."""
        if self.token in _GROUPS:
            return region.residency_group in _GROUPS[self.token]
        return self.token in (region.country, region.id.cloud, region.id.region, str(region.id))


Places = Annotated[
    tuple[PlaceRule, ...],
    BeforeValidator(as_many),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "type": "string",
                "examples": ["aws", "aws/us-east-1", "us-east-1", "DE", "EU", "EEA", "UK"],
            },
        }
    ),
]


class Residency(Spec):
    """The places where the job may run and its data may go.

    A region must match one of ``allow`` (empty: anywhere) and none of ``deny``.
    """

    allow: Places = ()
    deny: Places = ()

    @model_validator(mode="after")
    def _no_contradiction(self) -> Residency:
        for index, rule in enumerate(self.deny):
            if rule in self.allow:
                what = f"{rule} is both allowed and denied"
                raise RefusedError(what, "keep it in one of the lists", at=("deny", index))
        return self


def residency_refusal(residency: Residency, region: Region) -> str | None:
    """Return None when the job may run there, otherwise the rule that forbids it, in words.

    Where any rule names a country or group, a region whose country or group is unknown is forbidden.
    """
    area = next((rule for rule in (*residency.allow, *residency.deny) if rule.is_area), None)
    if area is not None and (region.country is None or region.residency_group is None):
        return f"the country of {region.id} is unknown, and {area} is a rule about countries"
    for rule in residency.deny:
        if rule.covers(region):
            return f"{rule} is denied"
    if residency.allow and not any(rule.covers(region) for rule in residency.allow):
        return f"{region.id} is not in {', '.join(map(str, residency.allow))}"
    return None


def unknown_tokens(residency: Residency, regions: Iterable[Region]) -> list[tuple[str, str | None]]:
    """Return rules that name nothing in ``regions``, each with the nearest word that does (None: none is near)."""
    known = known_words(regions) | set(_GROUPS)
    tokens = [str(rule) for rule in (*residency.allow, *residency.deny)]
    return [(token, nearest_word(token, known)) for token in tokens if token not in known]


def known_words(regions: Iterable[Region]) -> frozenset[str]:
    """Collect the words for a cloud, a region or a country by which a rule can name one of ``regions``."""
    known: set[str] = set()
    for region in regions:
        known |= {region.id.cloud, region.id.region, str(region.id)}
        known |= {region.country} if region.country else set()
    return frozenset(known)
