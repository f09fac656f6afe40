"""What ``stepfare offers`` shows: which offers, in which order, as which cells. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from pricing.book import PriceBook
from pricing.machines import Machine
from pricing.money import UsdPerHour, divide_half_even
from pricing.offers import Offer
from pricing.places import Market


class SortKey(StrEnum):
    """What offers are sorted by, cheapest first."""

    ACCELERATOR_HOUR = "accelerator-hour"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which offers to show; an empty tuple or None lets all pass."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()
    instance_types: tuple[str, ...] = ()
    provisionable: bool = False
    max_age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ShownOffer:
    """An offer with what is worked out from its machine and today's date."""

    offer: Offer
    machine: Machine
    usd_per_accelerator_hour: UsdPerHour
    age_days: int | None

    @property
    def age(self) -> str:
        """``3d``; ``<=368d`` where the date is "on or after"; ``?`` undated."""
        if self.age_days is None:
            return "?"
        return f"{'<=' if self.offer.not_before else ''}{self.age_days}d"


def select(book: PriceBook, filters: Filters, sort: SortKey, today: date) -> tuple[tuple[ShownOffer, ...], int]:
    """The offers that pass, cheapest first (ties by key), and how many failed ``max_age`` alone.

    An undated offer fails any maximum age; "on or after" is counted from that day, so never as too young.
    """
    shown, too_old = [], 0
    for offer in book.offers:
        machine = book.machine(offer.cloud, offer.instance_type)
        if machine is None or not _passes(offer, machine, filters):
            continue
        age = offer.age_days(today)
        if filters.max_age is not None and (age is None or timedelta(days=age) > filters.max_age):
            too_old += 1
            continue
        per_accelerator = UsdPerHour(divide_half_even(offer.usd_per_hour.nanos, machine.accelerator_count))
        shown.append(ShownOffer(offer, machine, per_accelerator, age))
    by_hour = sort is SortKey.HOUR
    shown.sort(key=lambda s: (s.offer.usd_per_hour if by_hour else s.usd_per_accelerator_hour, s.offer.key))
    return tuple(shown), too_old


def _passes(offer: Offer, machine: Machine, filters: Filters) -> bool:
    regions = (offer.region.lower(), str(offer.region_id).lower())
    return (
        _among(filters.clouds, offer.cloud)
        and (not filters.regions or any(r.lower() in regions for r in filters.regions))
        and _among(filters.accelerators, machine.accelerator)
        and (not filters.markets or offer.market in filters.markets)
        and _among(filters.instance_types, offer.instance_type)
        and (offer.provisionable or not filters.provisionable)
    )


def _among(wanted: Iterable[str], name: str) -> bool:
    wanted = [w.lower() for w in wanted]
    return not wanted or name.lower() in wanted


def unknown_names(book: PriceBook, filters: Filters) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Filter values that the book has never heard of: (option, value, known values)."""
    known = {
        "cloud": (filters.clouds, {r.id.cloud for r in book.regions}),
        "region": (filters.regions, {name for r in book.regions for name in (r.id.region, str(r.id))}),
        "accelerator": (filters.accelerators, {a.name for a in book.accelerators}),
        "instance-type": (filters.instance_types, {m.instance_type for m in book.machines}),
    }
    return tuple(
        (option, value, tuple(sorted(names)))
        for option, (values, names) in known.items()
        for value in values
        if value.lower() not in {name.lower() for name in names}
    )


def cents(price: UsdPerHour) -> str:
    """A price for people: four decimals below ten dollars, two above; json and csv carry exact figures."""
    step = 100_000 if price.nanos < 10_000_000_000 else 10_000_000
    rounded = divide_half_even(price.nanos, step)
    return f"{rounded / 10_000:.4f}" if step == 100_000 else f"{rounded / 100:.2f}"


def sources_of(shown: Sequence[ShownOffer]) -> tuple[str, ...]:
    """The distinct sources in order of appearance; the table refers to them by number."""
    return tuple(dict.fromkeys(s.offer.source for s in shown))


def record(shown: ShownOffer) -> dict[str, str | int | float | bool | None]:
    """One offer as JSON and CSV carry it: money as exact decimal strings, unknown as null."""
    offer, machine = shown.offer, shown.machine
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "market": offer.market.value,
        "accelerator": machine.accelerator,
        "accelerator_count": machine.accelerator_count,
        "usd_per_hour": str(offer.usd_per_hour),
        "usd_per_accelerator_hour": str(shown.usd_per_accelerator_hour),
        "as_of": None if offer.as_of is None else offer.as_of.isoformat(),
        "not_before": offer.not_before,
        "age_days": shown.age_days,
        "source": offer.source,
        "price_basis": offer.price_basis,
        "interruption_band": offer.interruption_band,
        "interruptions_per_hour": offer.interruptions_per_hour,
        "machines_cap": offer.machines_cap,
        "provisionable": offer.provisionable,
        "weak": offer.weak,
    }
