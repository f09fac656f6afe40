"""Places and markets: clouds, regions, and where machines are sold from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

# Clouds on which a plan can be carried out; the rest (neoclouds for now) are advisory.
PROVISIONABLE_CLOUDS = frozenset({"aws", "azure", "gcp", "sandbox", "static"})

# Those that announce interruptions in a queue of ours too.
ANNOUNCING_CLOUDS = frozenset({"aws"})

# Clouds whose machines and prices are invented for trials. They share no price book with real ones.
MADE_UP_CLOUDS = frozenset({"sandbox"})

# What clouds were called before, as other people's files still call them.
FORMER_NAMES = MappingProxyType({"datacrunch": "verda"})

# The ``geo`` and ``continent`` of a region that nobody has looked up.
UNKNOWN_GEO = "?"


class Market(StrEnum):
    """How a machine is bought."""

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
        """From ``cloud/region`` (``cloud:region`` too); ValueError otherwise."""
        cloud, separator, region = text.replace(":", "/", 1).partition("/")
        if not (cloud and separator and region):
            raise ValueError(f"{text!r} is not cloud/region, e.g. aws/us-east-1")
        return cls(cloud.lower(), region)


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """A region and what rules about places need.

    ``geo`` is the group that egress tariffs use (continent, but ME for the Middle East);
    ``residency_group`` is EU, EEA (Norway, Iceland), UK, otherwise the country; None is unknown.
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


def mixes_made_up(clouds: Iterable[str]) -> bool:
    """Return whether the names hold both a made-up cloud and a real one."""
    names = frozenset(clouds)
    return bool(names & MADE_UP_CLOUDS) and bool(names - MADE_UP_CLOUDS)
