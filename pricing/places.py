"""Places and markets: clouds, regions, known and unknown, and the ways in which machines are sold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from types import MappingProxyType

# Clouds on which a plan can be applied; the rest (neoclouds for now) are advisory.
PROVISIONABLE_CLOUDS = frozenset({"aws", "azure", "gcp", "sandbox", "static"})

# Clouds that also send interruption notices to a queue of the account.
NOTICE_QUEUE_CLOUDS = frozenset({"aws"})

# Clouds whose machines and prices are simulated for trials. They share no price book with real ones.
SIMULATED_CLOUDS = frozenset({"sandbox"})

# Former names of clouds, which files from elsewhere still use.
FORMER_CLOUD_NAMES = MappingProxyType({"datacrunch": "verda"})

# The ``geo`` and ``continent`` of a region that is in no table.
UNKNOWN_GEO = "?"

# Names of zones (us-east-1a) that differ from account to account, where machines are asked for by the zone's id.
_ZONE_NAMES_OF_ACCOUNTS = {"aws": re.compile(r"[a-z]+-[a-z]+-\d[a-z]")}


def is_zone_name_of_account(cloud: str, zone: str | None) -> bool:
    """Return whether the zone is a name that means another zone in another account."""
    names = _ZONE_NAMES_OF_ACCOUNTS.get(cloud)
    return names is not None and zone is not None and names.fullmatch(zone) is not None


class Market(StrEnum):
    """The way in which a machine is bought."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True, order=True)
class RegionId:
    """A region by name, written ``cloud/region``, e.g. ``aws/us-east-1``."""

    cloud: str
    region: str

    def __str__(self) -> str:
        return f"{self.cloud}/{self.region}"

    @classmethod
    def parse(cls, text: str) -> RegionId:
        """Parse ``cloud/region`` (``cloud:region`` too); ValueError otherwise."""
        cloud, separator, region = text.replace(":", "/", 1).partition("/")
        if not (cloud and separator and region):
            raise ValueError(f"{text!r} is not cloud/region, e.g. aws/us-east-1")
        return cls(cloud.lower(), region)


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """A region and the facts that rules about places need.

    ``geo`` is the group that egress tariffs use (continent, but ME for the Middle East); ``residency_group`` is EU, EEA
    (Norway, Iceland), UK, otherwise the country; None is unknown.
    """

    id: RegionId
    country: str | None
    continent: str
    geo: str
    residency_group: str | None
    city: str
    latitude: float | None
    longitude: float | None
    grid_carbon_gco2_per_kwh: int | None
    source: str
    as_of: str


def mixes_simulated_and_real(clouds: Iterable[str]) -> bool:
    """Return whether the names hold both a simulated cloud and a real one."""
    names = frozenset(clouds)
    return bool(names & SIMULATED_CLOUDS) and bool(names - SIMULATED_CLOUDS)


def make_unknown_region(cloud: str, region: str, source: str, today: date) -> Region:
    """Return a region whose country, residency and tariffs are unknown.

    A job with a residency rule or with data to move will not be placed there; others may.
    """
    return Region(
        id=RegionId(cloud, region),
        country=None,
        continent=UNKNOWN_GEO,
        geo=UNKNOWN_GEO,
        residency_group=None,
        city="",
        latitude=None,
        longitude=None,
        grid_carbon_gco2_per_kwh=None,
        source=source,
        as_of=today.isoformat(),
    )
