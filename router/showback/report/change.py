"""Explain changes: of a month on the one before, by bucket without remainder, and of single days that are unusual.

Things with a quantity (machine hours, gigabytes moved, ...) are explained each apart, with c the costs, q the
quantities and Q their sum in the month before (0) and this one (1), and for each kind g of thing (cloud, region,
machine type, market):

    volume = (Q1 - Q0) x C0 / Q0                 as much more of everything, at last month's mean price
    price  = sum over g in both of (c1/q1 - c0/q0) x q1
    mix    = C1 - C0 - volume - price            other kinds than last month; what is rounded goes here

A unit that one of the months does not have is volume. The rest (fees, taxes, credits, corrections) is ``other``.

A day is unusual where it is above the median of up to eight same weekdays before it by more than five times their
spread (1.4826 x the median absolute deviation, which is a standard deviation where days vary normally) and by more than
a floor of dollars. Fewer than four such days before it give no result, nor does a median of nothing: what runs now and
then has no usual level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from statistics import median

from router.showback.apportion import exact_difference, exact_sum, round_fraction
from router.showback.report.query import ReportContext
from router.showback.report.rollup_tables import date_of_day, day_number
from router.showback.report.values import CellValue, ReportSection, divide_known

BUCKETS = ("volume", "price", "mix", "other")
CHANGE = ReportSection.define(
    "change",
    "Change on last month",
    "currency:0 bucket:0 amount:0",
    amount="Change",
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


FLOOR, SPREADS, LEAST, MOST = Decimal(20), Decimal(5), 4, 8
_NORMAL = Decimal("1.4826")
_WEEK = 7
_WIDE = Context(prec=60)
ANOMALIES = ReportSection.define(
    "anomalies",
    "Unusual days",
    "day:0 team:0 cloud currency:0 cost:0 usual:0 above cause times:2",
)


@dataclass(frozen=True, slots=True)
class SeriesDay:
    """The usage of one series on a day; ``count`` is how many machines (stretches of them) began."""

    cost: Decimal
    hours: Decimal
    count: int


def build_anomalies(context: ReportContext) -> ReportSection:
    """Return a row for each unusual day, team and cloud, in order. Days that are not over are not judged."""
    query = context.query
    rows = context.rollups.ask(
        f"SELECT currency, team, cloud, day, sum({context.cost}) AS cost, sum(hours) AS hours, "
        f"sum(count)::BIGINT AS count FROM days WHERE category = 'Usage' AND NOT correction GROUP BY ALL ORDER BY ALL"
    )
    first, last = day_number(query.month.begins.date()), day_number(query.month.ends.date())
    last = min(last, day_number(query.now.date()))
    series: dict[tuple[str, str | None, str | None], dict[int, SeriesDay]] = {}
    for row in rows:
        day = SeriesDay(row["cost"] or Decimal(0), row["hours"] or Decimal(0), row["count"])
        series.setdefault((row["currency"], row["team"], row["cloud"]), {})[row["day"]] = day
    table: list[dict[str, CellValue]] = []
    for (currency, team, cloud), days in series.items():
        for number in range(first, last):
            anomaly = find_anomaly(days, number)
            if anomaly is not None:
                table.append(
                    {"day": date_of_day(number), "team": team, "cloud": cloud, "currency": currency, **anomaly}
                )
    ordered = sorted(
        table, key=lambda row: (str(row["day"]), str(row["currency"]), str(row["team"]), str(row["cloud"]))
    )
    note = (
        f"Against the median of {LEAST} to {MOST} same weekdays; where that is nothing, or the day is less than "
        f"{FLOOR} above it, nothing is told."
    )
    return ANOMALIES.fill(ordered, note)


def find_anomaly(days: Mapping[int, SeriesDay], number: int) -> dict[str, CellValue] | None:
    """Return what is unusual about a day of a series; None where nothing is, or too little is known."""
    today = days.get(number)
    if today is None:
        return None
    begins = min(days)
    numbers = [n for n in range(number - _WEEK, number - _WEEK * (MOST + 1), -_WEEK) if n >= begins]
    if len(numbers) < LEAST:
        return None
    past = [days.get(n, SeriesDay(Decimal(0), Decimal(0), 0)) for n in numbers]
    median_cost = median(day.cost for day in past)
    spread = _WIDE.multiply(_NORMAL, median(abs(day.cost - median_cost) for day in past))
    above = _WIDE.subtract(today.cost, median_cost)
    if median_cost <= 0:
        return None
    if above <= max(FLOOR, _WIDE.multiply(SPREADS, spread)):
        return None
    cause, times = _cause(today, past)
    return {"cost": today.cost, "usual": median_cost, "above": above, "cause": cause, "times": times}


def _cause(today: SeriesDay, past: Sequence[SeriesDay]) -> tuple[str, Decimal | None]:
    """Return the factor that is furthest above its own median: cost is price x hours a machine x machines.

    Where none is above it, none is the cause.
    """
    factors = {
        "price of an hour": _ratios([today, *past], lambda day: divide_known(day.cost, day.hours)),
        "run time": _ratios([today, *past], lambda day: divide_known(day.hours, day.count)),
        "number of machines": _ratios([today, *past], lambda day: Decimal(day.count)),
    }
    ratio_by_factor = {name: times for name, times in factors.items() if times is not None and times > 1}
    if not ratio_by_factor:
        return "not known", divide_known(today.cost, median(day.cost for day in past))
    name = max(ratio_by_factor, key=lambda name: ratio_by_factor[name])
    return name, ratio_by_factor[name]


def _ratios(days: Sequence[SeriesDay], measure: object) -> Decimal | None:
    values = [measure(day) for day in days]  # type: ignore[operator]
    past = [value for value in values[1:] if value]
    return None if values[0] is None or not past else divide_known(values[0], median(past))
