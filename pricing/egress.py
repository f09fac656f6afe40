"""Egress tariffs: the cost of moving bytes out of a place, tiered by the month's volume on a meter.

Prices are per GB (1e9 bytes). A zero-priced first tier that a priced one follows is an *allowance*: one for all regions
of an account, so a tariff alone cannot give it away; callers say how much of it is really free. A pair without a row is
unknown (None), never free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pricing.money import Usd, UsdPerGb, divide_half_even
from pricing.places import UNKNOWN_GEO, Region
from pricing.units import BYTES_PER_GB

SAME_CONTINENT = "inter-region same continent"
CROSS_CONTINENT = "inter-region cross-continent"
INTERNET = "internet"
_EXCEPT = "any except "


@dataclass(frozen=True, slots=True, order=True)
class Tier:
    """One price for the bytes of a month from ``from_bytes`` up to ``to_bytes`` (None: without end)."""

    from_bytes: int
    to_bytes: int | None
    price: UsdPerGb


@dataclass(frozen=True, slots=True, order=True)
class Tariff:
    """Tiers of one meter, contiguous from 0 to infinity (:func:`pricing.book_check.check_book` refuses others).

    ``from_group`` and ``to_group`` are a region name, geo codes joined by ``|``, ``any``, or ``any except OC and CN``.
    ``as_of`` is the oldest date of its tiers ("undated" when one has none).
    """

    cloud: str
    scope: str
    from_group: str
    to_group: str
    tiers: tuple[Tier, ...]
    source: str
    as_of: str
    weak: str

    @property
    def meter(self) -> str:
        """Return the key under which a month's volume accumulates, e.g. ``aws internet us-east-1 > any``."""
        return f"{self.cloud} {self.scope} {self.from_group} > {self.to_group}"

    @property
    def allowance_bytes(self) -> int:
        """Return the size of a zero-priced first tier that a priced one follows; else 0."""
        if len(self.tiers) < 2 or self.tiers[0].price.nanos != 0 or self.tiers[1].price.nanos == 0:
            return 0
        return self.tiers[0].to_bytes or 0

    @property
    def top_price(self) -> UsdPerGb:
        """Return the price of the most expensive tier: an upper bound for any byte on this meter."""
        return max(tier.price for tier in self.tiers)

    @property
    def after_allowance(self) -> UsdPerGb:
        """Return the price of a byte of the allowance once the allowance is used up: the next tier's price."""
        return self.tiers[1].price if self.allowance_bytes else self.tiers[0].price

    def cost_of(self, already_bytes: int, volume_bytes: int, free_bytes: int) -> Usd:
        """Return the cost of ``volume_bytes`` more after ``already_bytes`` of this month.

        ``free_bytes`` of the allowance are free; whatever else falls into the allowance tier is charged at the next
        tier's price. The sum is exact, with one rounding. ValueError for a negative volume, or when ``free_bytes`` is
        not within the allowance.
        """
        if already_bytes < 0 or volume_bytes < 0:
            raise ValueError("a volume of bytes cannot be negative")
        if not 0 <= free_bytes <= self.allowance_bytes:
            raise ValueError(f"{free_bytes} free bytes exceed the allowance of {self.allowance_bytes}")
        total = 0
        for index, tier in enumerate(self.tiers):
            used = _overlap(tier, already_bytes, already_bytes + volume_bytes)
            if index == 0 and self.allowance_bytes:
                total += (used - min(free_bytes, used)) * self.after_allowance.nanos
            else:
                total += used * tier.price.nanos
        return Usd(divide_half_even(total, BYTES_PER_GB))

    def allowance_use(self, already_bytes: int, volume_bytes: int) -> int:
        """Return the number of added bytes that fall into the allowance tier (0 where there is none)."""
        if not self.allowance_bytes:
            return 0
        return _overlap(self.tiers[0], already_bytes, already_bytes + volume_bytes)


def _overlap(tier: Tier, start: int, end: int) -> int:
    stop = end if tier.to_bytes is None else min(end, tier.to_bytes)
    return max(0, stop - max(start, tier.from_bytes))


def free_tariff(cloud: str) -> Tariff:
    """Return the tariff within one region: one tier at zero.

    Traffic that crosses zones is not modelled.
    """
    tier = Tier(0, None, UsdPerGb(0))
    return Tariff(cloud, "same region", "any", "any", (tier,), "no transfer leaves the region", "", "")


def compute_meter_costs(
    items: Sequence[tuple[Tariff, int, int]], free_bytes_left: Mapping[str, int]
) -> tuple[Usd, ...]:
    """Return the cost of each ``(tariff, already_bytes, volume_bytes)``, with allowances given where they save most.

    Each item is one meter (ValueError otherwise). ``free_bytes_left`` is, by cloud, the rest of the account's allowance
    this month; a cloud that is missing has none left. The allowance goes to the highest next-tier price first, ties by
    meter name: that gives the lowest total.
    """
    meters = [tariff.meter for tariff, _, _ in items]
    if len(set(meters)) != len(meters):
        raise ValueError("each item must be a meter of its own: add up volumes of one meter first")
    remaining = dict(free_bytes_left)
    costs: dict[str, Usd] = {}
    for tariff, already, volume in sorted(items, key=lambda i: (-i[0].after_allowance.nanos, i[0].meter)):
        free = min(max(0, remaining.get(tariff.cloud, 0)), tariff.allowance_use(already, volume))
        if free:
            remaining[tariff.cloud] -= free
        costs[tariff.meter] = tariff.cost_of(already, volume, free)
    return tuple(costs[meter] for meter in meters)


def _match(group: str, name: str | None, region: Region | None) -> int:
    """Return how closely ``group`` names the place.

    3 is by name, 2 by geo, 1 by exclusion, 0 any, -1 not at all.
    """
    if group == "any":
        return 0
    if group == name:
        return 3
    if region is None:
        return -1
    codes = {region.geo, region.country}
    if region.geo == UNKNOWN_GEO:
        return -1
    if group.startswith(_EXCEPT):
        return -1 if codes & set(group.removeprefix(_EXCEPT).split(" and ")) else 1
    return 2 if region.geo in group.split("|") else -1


@dataclass(frozen=True)
class EgressTable:
    """Look up the tariffs of a book by pair of places; answers are cached."""

    tariffs: tuple[Tariff, ...]

    @cached_property
    def _by_scope(self) -> Mapping[tuple[str, str], tuple[Tariff, ...]]:
        table: dict[tuple[str, str], list[Tariff]] = {}
        for tariff in self.tariffs:
            table.setdefault((tariff.cloud, tariff.scope), []).append(tariff)
        return {key: tuple(rows) for key, rows in table.items()}

    @cached_property
    def _answers(self) -> dict[tuple[Region, Region], Tariff | None]:
        return {}

    @cached_property
    def allowances(self) -> Mapping[str, int]:
        """Return the bytes a month that each cloud gives away once per account (its largest; absent: none)."""
        sizes: dict[str, int] = {}
        for tariff in self.tariffs:
            if tariff.allowance_bytes:
                sizes[tariff.cloud] = max(sizes.get(tariff.cloud, 0), tariff.allowance_bytes)
        return sizes

    def between(self, src: Region, dst: Region) -> Tariff | None:
        """Return the tariff from one region to another; None where no row covers the pair: unknown, never zero.

        The most specific row wins (region name, then geo group, then ``any``). Premium network tier only.
        """
        pair = (src, dst)
        if pair not in self._answers:
            self._answers[pair] = self._find(src, dst)
        return self._answers[pair]

    def _find(self, src: Region, dst: Region) -> Tariff | None:
        if src.id == dst.id:
            return free_tariff(src.id.cloud)
        if src.id.cloud != dst.id.cloud:
            return self._best(src.id.cloud, INTERNET, src, dst)
        if UNKNOWN_GEO in {src.geo, dst.geo}:
            return None
        scope = SAME_CONTINENT if src.geo == dst.geo else CROSS_CONTINENT
        return self._best(src.id.cloud, scope, src, dst)

    def outbound(self, cloud: str, src: Region | None) -> Tariff | None:
        """Return the tariff to the internet from ``src``; None when unknown.

        ``src`` None is a storage place that is no region, such as ``cloudflare-r2``. Where the price depends on the
        destination, the most expensive row is taken, so that nothing is understated.
        """
        name = src.id.region if src else None
        ranked = [
            (_match(tariff.from_group, name, src), tariff.top_price, tariff)
            for tariff in self._by_scope.get((cloud, INTERNET), ())
        ]
        best = max(ranked, default=None)
        return best[2] if best is not None and best[0] >= 0 else None

    def _best(self, cloud: str, scope: str, src: Region, dst: Region) -> Tariff | None:
        best: tuple[tuple[int, int, int], UsdPerGb, Tariff] | None = None
        for tariff in self._by_scope.get((cloud, scope), ()):
            origin = _match(tariff.from_group, src.id.region, src)
            target = _match(tariff.to_group, dst.id.region, dst)
            if origin < 0 or target < 0:
                continue
            # A region name on either side beats geo groups on both; of equal rows the more expensive one wins.
            rank = (max(origin, target), min(origin, target), origin)
            if best is None or (rank, tariff.top_price, tariff) > best:
                best = (rank, tariff.top_price, tariff)
        return None if best is None else best[2]
