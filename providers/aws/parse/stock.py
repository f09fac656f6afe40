"""Placement scores and capacity blocks for sale. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pricing.places import Market
from providers.protocol import StockHint, Wanted

SCORE_SOURCE = "AWS EC2 GetSpotPlacementScores"
BLOCK_SOURCE = "AWS EC2 DescribeCapacityBlockOfferings, blocks of 24 hours"
_HIGHEST_SCORE = 10


def largest_gangs(
    wanted: Iterable[Wanted], market: Market, everywhere: tuple[str, ...]
) -> Mapping[tuple[str, str], int]:
    """By instance type and region, the most machines that are wanted there: what can be had for the largest gang
    can be had for the smaller ones, and every further question counts against a daily limit."""
    gangs: dict[tuple[str, str], int] = {}
    for gang in wanted:
        if gang.market is not market:
            continue
        for region in gang.regions or everywhere:
            key = (gang.instance_type, region)
            gangs[key] = max(gang.machines, gangs.get(key, 0))
    return gangs


def score_hints(instance_type: str, rows: Iterable[Mapping[str, Any]]) -> tuple[StockHint, ...]:
    """Of GetSpotPlacementScores by zone: its 1 to 10 as 0.1 to 1.0."""
    return tuple(
        StockHint(
            region=row["Region"],
            zone=row.get("AvailabilityZoneId"),
            instance_type=instance_type,
            market=Market.SPOT,
            score=min(max(row["Score"], 0), _HIGHEST_SCORE) / _HIGHEST_SCORE,
            machines=None,
            source=SCORE_SOURCE,
        )
        for row in rows
        if row.get("Region") and isinstance(row.get("Score"), int)
    )


def block_hints(
    region: str, instance_type: str, rows: Iterable[Mapping[str, Any]], zones: Mapping[str, str]
) -> tuple[StockHint, ...]:
    """Of DescribeCapacityBlockOfferings: the most machines that one block of a zone holds."""
    most: dict[str | None, int] = {}
    for row in rows:
        if row.get("InstanceType") == instance_type and isinstance(row.get("InstanceCount"), int):
            zone = zones.get(row.get("AvailabilityZone", ""))
            most[zone] = max(row["InstanceCount"], most.get(zone, 0))
    return tuple(
        StockHint(region, zone, instance_type, Market.RESERVED, None, machines, BLOCK_SOURCE)
        for zone, machines in sorted(most.items(), key=lambda item: item[0] or "")
    )
