"""Parser of regions and zones. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from providers.errors import UnreadableError

# The form of a region; the price list also has codes of local and wavelength zones, such as us-east-1-wl1-bos-wlz-1.
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
# Regions of other partitions, in which an ordinary account cannot buy.
_OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso")
_ON = frozenset({"opt-in-not-required", "opted-in"})


def split_regions_by_status(rows: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return, from DescribeRegions, the enabled regions (sorted), and those that the account has not enabled."""
    status = {str(row["RegionName"]): row.get("OptInStatus") in _ON for row in rows if row.get("RegionName")}
    enabled = tuple(sorted(name for name, on in status.items() if on))
    return enabled, frozenset(name for name, on in status.items() if not on)


def zone_ids(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return, from DescribeAvailabilityZones, zone id by zone name.

    A name such as us-east-1a means another data centre in every account; the id (use1-az4) is the same for all.
    """
    return {row["ZoneName"]: row["ZoneId"] for row in rows if row.get("ZoneName") and row.get("ZoneId")}


def parse_region_index(cloud: str, index: Any) -> tuple[str, ...]:
    """Return, from the price list's region_index.json, the regions that anyone can buy in, sorted.

    UnreadableError for another form.
    """
    regions = index.get("regions") if isinstance(index, Mapping) else None
    if not isinstance(regions, Mapping):
        raise UnreadableError(cloud, "the price list's index of regions is not of the known form")
    codes = (code for code in regions if _REGION.fullmatch(code))
    return tuple(sorted(code for code in codes if not code.startswith(_OTHER_PARTITIONS)))
