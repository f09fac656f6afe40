"""What moved bytes cost, worked out a second time: lookup, tiers and shared allowances.

Only the tariff rows are taken from ``pricing.egress``; the arithmetic here is its own, in exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from pricing.egress import Tariff
from pricing.places import Region

GB = 10**9
GIB = 2**30


@dataclass(frozen=True)
class Shipment:
    """Bytes on one tariff in one month (``2026-11``)."""

    tariff: Tariff
    month: str
    volume: int


def meter_name(tariff: Tariff) -> str:
    """The name under which a month's volume adds up: cloud, scope and groups."""
    return f"{tariff.cloud} {tariff.scope} {tariff.from_group} > {tariff.to_group}"


def find_tariff(tariffs: Iterable[Tariff], cloud: str, src: Region | None, dst: Region) -> Tariff | None:
    """The most specific row for bytes from ``src`` (None: a store that is no region) to another region."""
    if src is None or cloud != dst.id.cloud:
        scope = "internet"
    elif src.geo == dst.geo:
        scope = "inter-region same continent"
    else:
        scope = "inter-region cross-continent"
    fitting = []
    for row in tariffs:
        if (row.cloud, row.scope) != (cloud, scope):
            continue
        here, there = _fit(row.from_group, src), _fit(row.to_group, dst)
        if here is not None and there is not None:
            fitting.append((sorted((here, there), reverse=True), here, row))
    if not fitting:
        return None
    best = max((ranks, here) for ranks, here, _ in fitting)
    return max((row for ranks, here, row in fitting if (ranks, here) == best), key=lambda row: dearest(row))


def _fit(group: str, region: Region | None) -> int | None:
    if group == "any":
        return 0
    if region is None:
        return None
    if group == region.id.region:
        return 3
    if group.startswith("any except "):
        named = group[len("any except ") :].split(" and ")
        return None if region.geo in named or region.country in named else 1
    return 2 if region.geo in group.split("|") else None


def dearest(tariff: Tariff) -> int:
    """Nano-dollars a GB of the dearest tier: what budgets and dollar caps count."""
    return max(tier.price.nanos for tier in tariff.tiers)


def gift_size(tariff: Tariff) -> int:
    """Bytes of a free first tier that is followed by a priced one."""
    first = tariff.tiers[0]
    if first.price.nanos == 0 and first.to_bytes is not None and tariff.tiers[1].price.nanos > 0:
        return first.to_bytes
    return 0


def bill(
    shipments: Iterable[Shipment],
    *,
    tariffs: Iterable[Tariff],
    this_month: str,
    moved_bytes: Mapping[str, int],
) -> dict[tuple[str, str], Fraction]:
    """Nano-dollars (not rounded) by (month, meter).

    ``moved_bytes`` by cloud went out before now, this month: counted on every internet meter and the gift.
    """
    volumes: dict[tuple[str, str], int] = {}
    rows: dict[str, Tariff] = {}
    for item in shipments:
        name = meter_name(item.tariff)
        rows[name] = item.tariff
        volumes[item.month, name] = volumes.get((item.month, name), 0) + item.volume
    gifts: dict[str, int] = {}
    for row in tariffs:
        gifts[row.cloud] = max(gifts.get(row.cloud, 0), gift_size(row))
    result: dict[tuple[str, str], Fraction] = {}
    for month in sorted({month for month, _ in volumes}):
        before = dict(moved_bytes) if month == this_month else {}
        left = {cloud: max(0, size - before.get(cloud, 0)) for cloud, size in gifts.items()}
        names = sorted((name for m, name in volumes if m == month), key=lambda n: (-_second_price(rows[n]), n))
        for name in names:
            row = rows[name]
            start = before.get(row.cloud, 0) if row.scope == "internet" else 0
            full, inside = _without_gift(row, start, start + volumes[month, name])
            free = min(inside, left.get(row.cloud, 0))
            left[row.cloud] = left.get(row.cloud, 0) - free
            result[month, name] = Fraction(full - free * _second_price(row), GB)
    return result


def _second_price(tariff: Tariff) -> int:
    return tariff.tiers[1].price.nanos if gift_size(tariff) else tariff.tiers[0].price.nanos


def _without_gift(tariff: Tariff, start: int, end: int) -> tuple[int, int]:
    """Nano-dollar-bytes of ``start``..``end`` if nothing were given away, and the bytes in the gift tier."""
    total, inside, gift = 0, 0, gift_size(tariff)
    for tier in tariff.tiers:
        top = end if tier.to_bytes is None else min(end, tier.to_bytes)
        size = max(0, top - max(start, tier.from_bytes))
        if gift and tier.from_bytes == 0:
            inside = size
            total += size * _second_price(tariff)
        else:
            total += size * tier.price.nanos
    return total, inside
