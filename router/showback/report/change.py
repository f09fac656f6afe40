"""Explain why a month cost more or less than the one before: volume, price, mix and other, without remainder.

Things with a quantity (machine hours, gigabytes moved, ...) are explained each apart, with c the costs, q the
quantities and Q their sum in the month before (0) and this one (1), and for each kind g of thing (cloud, region,
machine type, market):

    volume = (Q1 - Q0) x C0 / Q0                 as much more of everything, at last month's mean price
    price  = sum over g in both of (c1/q1 - c0/q0) x q1
    mix    = C1 - C0 - volume - price            other kinds than last month; what is rounded goes here

A unit that one of the months does not have is volume. The rest (fees, taxes, credits, corrections) is ``other``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from router.showback.apportion import exact_difference, exact_sum, round_fraction
from router.showback.report.query import ReportContext
from router.showback.report.values import CURRENCY, CellKind, CellValue, ReportColumn, ReportSection, define_section

BUCKETS = ("volume", "price", "mix", "other")
CHANGE = define_section(
    "change",
    "Change on last month",
    CURRENCY,
    ReportColumn("bucket", "Because of", rank=0),
    ReportColumn("amount", "Change", CellKind.MONEY, 0),
)
_PLACES = 9
_WHAT = {
    "volume": "more or fewer hours and gigabytes, at last month's mean price",
    "price": "other prices for what both months had",
    "mix": "other places, machines and markets",
    "other": "fees, taxes, credits, corrections: what has no quantity",
}


@dataclass(frozen=True, slots=True)
class ThingCost:
    """The cost of one kind of thing in a month; ``quantity`` None: it has none."""

    kind: tuple[str | None, ...]
    unit: str | None
    cost: Decimal
    quantity: Decimal | None


def build_change(context: ReportContext) -> ReportSection:
    """Return a row for each currency and bucket; none where the month before has nothing."""
    by_month: dict[str, dict[str, list[ThingCost]]] = {}
    rows = context.sum_by(
        "month, currency, what, cloud, region, instance_type, market, unit, correction OR category <> 'Usage' AS apart",
        "cost",
        "quantity",
        "hours",
        where="source <> 'planned'",
    )
    for row in rows:
        kind = tuple(row[name] for name in ("what", "cloud", "region", "instance_type", "market"))
        quantity = row["hours"] if row["what"] == "machine" else row["quantity"]
        countable = None if row["apart"] or row["unit"] is None else quantity
        thing = ThingCost(kind, f"{row['what']} {row['unit']}", row["cost"] or Decimal(0), countable or None)
        by_month.setdefault(row["month"], {}).setdefault(row["currency"], []).append(thing)
    before, now = by_month.get(context.before, {}), by_month.get(context.month, {})
    table: list[dict[str, CellValue]] = [
        {"currency": currency, "bucket": bucket, "amount": amount}
        for currency in sorted(before.keys() | now.keys())
        if before
        for bucket, amount in explain_change(before.get(currency, ()), now.get(currency, ())).items()
    ]
    notes = [f"{name}: {text}." for name, text in _WHAT.items()] if table else ["There is no month before it."]
    return CHANGE.fill(table, *notes)


def explain_change(before: Iterable[ThingCost], now: Iterable[ThingCost]) -> dict[str, Decimal]:
    """Return the amount of each bucket; together they are the change, to the last digit."""
    amounts = dict.fromkeys(BUCKETS, Decimal(0))
    units: dict[str | None, tuple[list[ThingCost], list[ThingCost]]] = defaultdict(lambda: ([], []))
    for place, things in enumerate((before, now)):
        for thing in things:
            units[thing.unit if thing.quantity is not None else None][place].append(thing)
    for unit, (old, new) in units.items():
        difference = exact_difference(_sum(new), _sum(old))
        if unit is None:
            amounts["other"] = exact_sum((amounts["other"], difference))
            continue
        volume, price = _volume(old, new), _price(old, new)
        amounts["volume"] = exact_sum((amounts["volume"], volume))
        amounts["price"] = exact_sum((amounts["price"], price))
        amounts["mix"] = exact_sum((amounts["mix"], exact_difference(exact_difference(difference, volume), price)))
    return amounts


def _volume(old: list[ThingCost], new: list[ThingCost]) -> Decimal:
    if not old or not new:
        return exact_difference(_sum(new), _sum(old))
    before, after = _quantity(old), _quantity(new)
    if not before:
        return Decimal(0)
    return round_fraction((after - before) * Fraction(_sum(old)) / before, _PLACES)


def _price(old: list[ThingCost], new: list[ThingCost]) -> Decimal:
    first, second = _by_kind(old), _by_kind(new)
    if not old or not new:
        return Decimal(0)
    total = Fraction(0)
    for kind in first.keys() & second.keys():
        (cost, quantity), (cost_now, quantity_now) = first[kind], second[kind]
        if quantity:
            total += cost_now - cost / quantity * quantity_now
    return round_fraction(total, _PLACES)


def _by_kind(things: list[ThingCost]) -> dict[tuple[str | None, ...], tuple[Fraction, Fraction]]:
    totals: dict[tuple[str | None, ...], tuple[Fraction, Fraction]] = {}
    for thing in things:
        cost, quantity = totals.get(thing.kind, (Fraction(0), Fraction(0)))
        totals[thing.kind] = (cost + Fraction(thing.cost), quantity + Fraction(thing.quantity or 0))
    return totals


def _sum(things: list[ThingCost]) -> Decimal:
    return exact_sum(thing.cost for thing in things)


def _quantity(things: list[ThingCost]) -> Fraction:
    return sum((Fraction(thing.quantity or 0) for thing in things), Fraction(0))
