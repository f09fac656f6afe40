"""Parser of placement scores and capacity blocks for sale. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pricing.machines import Machine
from pricing.places import Market
from providers.protocol import GangQuery, StockHint

SCORE_SOURCE = "AWS EC2 GetSpotPlacementScores"
BLOCK_SOURCE = "AWS EC2 DescribeCapacityBlockOfferings, blocks of 24 hours"
_HIGHEST_SCORE = 10
# EC2 always gives a low score when asked about one or two instance types (API reference, InstanceTypes).
SCORED_TYPES = 3


def find_largest_gangs(
    queries: Iterable[GangQuery], market: Market, everywhere: tuple[str, ...]
) -> Mapping[tuple[str, str], int]:
    """Return, by instance type and region, the most machines that are wanted there.

    What can be obtained for the largest gang can be obtained for the smaller ones, and every further query counts
    against a daily limit.
    """
    gangs: dict[tuple[str, str], int] = {}
    for gang in queries:
        if gang.market is not market:
            continue
        for region in gang.regions or everywhere:
            key = (gang.instance_type, region)
            gangs[key] = max(gang.machines, gangs.get(key, 0))
    return gangs


def choose_scored_types(instance_type: str, machines: Iterable[Machine]) -> tuple[str, ...]:
    """Choose the instance types to ask one placement score for: the wanted type, then those most like it.

    Alike means, in this order: the same accelerator, the nearest accelerator memory in total, the same family, the
    name. The wanted type alone where the machines do not contain it, since then similar types are unknown.
    """
    known = {machine.instance_type: machine for machine in machines}
    wanted = known.pop(instance_type, None)
    if wanted is None:
        return (instance_type,)

    def distance(other: Machine) -> tuple[bool, float, bool, str]:
        memory = [m.accelerator_count * m.accelerator_memory_gib for m in (wanted, other)]
        apart = abs(math.log2(max(memory[1], 1) / max(memory[0], 1)))
        return (other.accelerator != wanted.accelerator, apart, other.family != wanted.family, other.instance_type)

    alike = sorted(known.values(), key=distance)[: SCORED_TYPES - 1]
    return (instance_type, *(machine.instance_type for machine in alike))


def read_score_hints(instance_type: str, rows: Iterable[Mapping[str, Any]]) -> tuple[StockHint, ...]:
    """Read GetSpotPlacementScores by zone: 1 to 10 becomes 0.1 to 1.0."""
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


def read_block_hints(
    region: str, instance_type: str, rows: Iterable[Mapping[str, Any]], zones: Mapping[str, str]
) -> tuple[StockHint, ...]:
    """Return, from DescribeCapacityBlockOfferings, the most machines that one block of a zone holds."""
    most: dict[str | None, int] = {}
    for row in rows:
        if row.get("InstanceType") == instance_type and isinstance(row.get("InstanceCount"), int):
            zone = zones.get(row.get("AvailabilityZone", ""))
            most[zone] = max(row["InstanceCount"], most.get(zone, 0))
    return tuple(
        StockHint(region, zone, instance_type, Market.RESERVED, None, machines, BLOCK_SOURCE)
        for zone, machines in sorted(most.items(), key=lambda item: item[0] or "")
    )
