"""Regions that the region table does not know yet: entered with everything unknown, never guessed."""

from __future__ import annotations

from datetime import date

from pricing.places import UNKNOWN_GEO, Region, RegionId


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
