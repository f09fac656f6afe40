"""Parser of a market of single hosts into offers: one for each region, accelerator, count and market.

Field names and units are those that ``gpuhunt.providers.vastai`` reads. Every host has a price of its own, so an offer
is stated such that it holds: its price is the median of the hosts' (of an even number the lower one of the two in the
middle), and ``machines_cap`` counts the hosts that cost no more. That many machines can be obtained at that price or
less; the more expensive half is not offered. Hosts that offer the same machine in slices (8, 4 or 1 accelerators)
appear in each of their sizes, so the caps of different sizes must not be added.

What hosts of one type have besides the accelerators differs, so vCPUs and memory are unknown. A host's price is that of
the machine (``dph_base``; the least bid on spot) with 100 GB of its disk, or all of it if it has less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

from pricing.machines import Accelerator
from pricing.money import NANOS, UsdPerHour, divide_half_even
from pricing.places import Market
from providers.neoclouds.parse.accelerators import AcceleratorIndex
from providers.neoclouds.parse.catalogue_rows import NOT_ABOVE_ZERO, BadRow, CatalogueContent, CatalogueListing

DISK_GB = 100
NO_PLACE = "the host does not say where it is"
_HOURS_PER_MONTH = 30 * 24


@dataclass(frozen=True)
class HostGroup:
    """Free hosts of one kind in one region, their prices ascending."""

    region: str
    accelerator: Accelerator
    count: int
    market: Market
    prices: tuple[UsdPerHour, ...]

    @property
    def instance_type(self) -> str:
        """Return the name of the machine type that these hosts are, e.g. ``8x_H100``."""
        return f"{self.count}x_{self.accelerator.name}"

    @property
    def price(self) -> UsdPerHour:
        """Return the (lower) median."""
        return self.prices[(len(self.prices) - 1) // 2]

    @property
    def machines(self) -> int:
        """Return the number of hosts that cost no more than :attr:`price`."""
        return sum(price <= self.price for price in self.prices)


# The kind of hosts: region, accelerator, how many of it, market.
_Kind = tuple[str, Accelerator, int, Market]


class _WrongFieldError(ValueError):
    def __init__(self, name: str, what: str) -> None:
        super().__init__(what)
        self.name = name


def read_hosts(answer: Any, accelerators: AcceleratorIndex) -> tuple[list[HostGroup], CatalogueContent]:
    """Return the groups, sorted, and a reading that lists them and names what was left out.

    ``answer`` is JSON with its fractions as Decimal. ValueError when it is not of the known form.
    """
    offers = answer.get("offers") if isinstance(answer, dict) else None
    if not isinstance(offers, list):
        raise ValueError("no list of offers")
    reading = CatalogueContent(rows=len(offers))
    hosts: dict[str, list[tuple[_Kind, UsdPerHour]]] = {}
    for line, offer in enumerate(offers, start=1):
        host = _take(line, offer, accelerators, reading)
        if host is not None:
            hosts[str(offer.get("id"))] = host
    prices: dict[_Kind, list[UsdPerHour]] = {}
    for kind, price in chain.from_iterable(hosts.values()):
        prices.setdefault(kind, []).append(price)
    groups = sorted(
        (HostGroup(*kind, tuple(sorted(some))) for kind, some in prices.items()),
        key=lambda g: (g.region, g.instance_type, g.market),
    )
    reading.locations |= {group.region for group in groups}
    reading.listings = [_listing(group) for group in groups]
    return groups, reading


def format_location(text: str) -> str:
    """Return ``us-florida`` for ``Florida, US``, as gpuhunt writes it; a country alone stays as it is."""
    place, _, country = text.rpartition(",")
    name = f"{country.strip()}-{place.strip()}" if place.strip() else country
    return name.strip().lower().replace(" ", "").replace(",", "-")


def _take(
    line: int, offer: Any, accelerators: AcceleratorIndex, reading: CatalogueContent
) -> list[tuple[_Kind, UsdPerHour]] | None:
    if not isinstance(offer, dict):
        reading.bad.append(BadRow(line, "", "is no mapping", "", f"offer {line}", ""))
        return None
    if offer.get("rented") is True or offer.get("rentable") is False or not offer.get("num_gpus"):
        return None
    label = f"host {offer.get('id')}"
    place = offer.get("geolocation")
    region = format_location(place) if isinstance(place, str) else ""
    try:
        host = _read(offer, region, accelerators)
    except _WrongFieldError as wrong:
        reading.bad.append(BadRow(line, wrong.name, str(wrong), str(offer.get(wrong.name))[:60], label, region or "?"))
        return None
    if isinstance(host, str):
        reading.leave_out(label, host, region)
        return None
    return host


def _read(
    offer: Mapping[str, Any], region: str, accelerators: AcceleratorIndex
) -> list[tuple[_Kind, UsdPerHour]] | str:
    name, count, memory = offer.get("gpu_name"), offer.get("num_gpus"), _number(offer, "gpu_ram")
    if not isinstance(name, str):
        raise _WrongFieldError("gpu_name", "is no text")
    if not isinstance(count, int) or not 0 < count <= 64:
        raise _WrongFieldError("num_gpus", "is no count")
    accelerator = accelerators.find(name, float(memory) / 1024)
    if isinstance(accelerator, str):
        return accelerator
    if not region:
        return NO_PLACE
    disk = min(Fraction(DISK_GB), _number(offer, "disk_space")) * _number(offer, "storage_cost") / _HOURS_PER_MONTH
    base = _number(offer, "dph_base")
    if base == 0:
        return NOT_ABOVE_ZERO
    bid = _number(offer, "min_bid") if offer.get("min_bid") is not None else Fraction(0)
    prices = {Market.ON_DEMAND: base} if bid <= 0 else {Market.ON_DEMAND: base, Market.SPOT: bid}
    return [((region, accelerator, count, market), _price(price + disk)) for market, price in prices.items()]


def _number(offer: Mapping[str, Any], name: str) -> Fraction:
    value = offer.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not 0 <= value < 10**9:
        raise _WrongFieldError(name, "is no number of 0 or more")
    return Fraction(value)


def _price(usd: Fraction) -> UsdPerHour:
    exact = usd * NANOS
    return UsdPerHour(divide_half_even(exact.numerator, exact.denominator))


def _listing(group: HostGroup) -> CatalogueListing:
    return CatalogueListing(
        line=0,
        instance_type=group.instance_type,
        location=group.region,
        zone=None,
        market=group.market,
        usd_per_hour=group.price,
        accelerator=group.accelerator.name,
        accelerator_count=group.count,
        accelerator_gib=None,
        vcpus=None,
        memory_gib=None,
        cap=group.machines,
        model=group.accelerator,
    )
