"""Forecast the cost of a month by its parts, each a distribution of draws. Pure.

Certain is what is booked, what running machines have cost, and what is ordered. Charges recur by date; commitments go
on as in the last seven days; nights are drawn from the weeks before. The parts of a draw add up to its month.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from router.ledger.month import Month
from router.showback.report.rollup_tables import date_of_day, day_number

Floats = np.ndarray[Any, np.dtype[np.float64]]
#: The days before a month's day that nights are drawn from, and the fewest that make a forecast.
HISTORY_DAYS: Final = 91
LEAST_DAYS: Final = 4
ALL: Final = "all"
_WEEK: Final = 7
_LEAST_WEEKS: Final = 3
_DRAWS: Final = 1000
_SEED: Final = 2026
# Four of five outcomes lie between these shares.
_ENDS: Final = (0.1, 0.9)
# Found on seeds 0 to 199 of tests.bench.made_up_months: the half-life of a week's weight, the power in which the trend
# is a line (between dollars, 1, and their square root), how far an uncertain trend is drawn to none, and how much
# wider than the resampled weeks their unknown process is.
_HALF_LIFE_WEEKS: Final = 6.0
_TREND_POWER: Final = 0.7
_TREND_SHRINKAGE: Final = 0.3
_SPREAD: Final = 1.15
# A charge is expected until so many days after its usual date.
_GRACE_DAYS: Final = 3
_CENT: Final = Decimal("0.01")
_DAY: Final = timedelta(days=1)
# Charges that may recur although only one month has them.
_USUALLY_RECURRING: Final = ("Purchase", "Tax")


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyCost:
    """The cost of a day (number since 1970) in the books of a month. ``series``: which charges are of one kind."""

    team: str
    project: str | None
    category: str
    series: tuple[str | None, ...]
    is_committed: bool
    month: str
    day: int
    cost: float

    @property
    def is_usage(self) -> bool:
        return self.category == "Usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedCost:
    """The cost that a plan's order is to have from ``start`` until ``end``, spread evenly."""

    team: str
    project: str | None
    start: datetime
    end: datetime
    cost: float


@dataclass(frozen=True, slots=True)
class ForecastPart:
    """A part of a forecast: its mean, the range of four in five draws, and what it rests on."""

    name: str
    low: Decimal
    middle: Decimal
    high: Decimal
    rests_on: str


def forecast_month(
    fixed: Mapping[str, Decimal],
    daily: Sequence[DailyCost],
    ordered: Iterable[OrderedCost],
    now: datetime,
    month: Month,
) -> tuple[ForecastPart, ...]:
    """Return the parts of the month's forecast, then ``all`` of it; none with fewer than four days of usage.

    ``fixed`` is what is booked and what running machines cost, by name. Means of the parts add up to that of all; the
    ends of their ranges do not, because not all parts are low at once. Equal inputs give equal parts.
    """
    today = day_number(now.date())
    usage = [each for each in daily if each.is_usage and not each.is_committed]
    nights = _fill_days(usage, today)
    if len(nights) < LEAST_DAYS:
        return ()
    # Of today what is left of it.
    left = np.ones(day_number(month.ends.date()) - today)
    left[0] = 1 - (now - datetime.combine(now.date(), datetime.min.time(), now.tzinfo)) / _DAY
    draw = np.random.default_rng(_SEED)
    orders = _spread_orders(ordered, now, len(left))
    drawn = _draw_nights(nights, len(left), draw) * left
    parts: list[tuple[str, Floats, str]] = [
        (name, np.zeros(1), _FIXED[name]) for name, amount in fixed.items() if amount or name == "booked"
    ]
    charges, due = _draw_charges([each for each in daily if not each.is_usage], today, month, draw)
    if due:
        parts.append(("charges", charges, f"charges of earlier months: {'; '.join(due)}"))
    committed = _fill_days([each for each in daily if each.is_usage and each.is_committed], today)[-_WEEK:]
    if committed.any():
        totals = (draw.choice(committed, (_DRAWS, len(left))) * left).sum(1)
        parts.append(("commitments", totals, f"reserved and committed machines on the last {len(committed)} days"))
    if orders.any():
        parts.append(("orders", np.full(1, orders.sum()), "lines still to come of applied plans, by their dates"))
    # A night that costs more than what is ordered for it has more to come; one that costs less has not.
    parts.append(("nights", np.maximum(drawn - orders, 0).sum(1), _basis_of_nights(len(nights))))
    together = sum((totals for _, totals, _ in parts), np.zeros(_DRAWS))
    rests_on = "the sum of the parts in each draw; the ends of their ranges do not add up"
    booked = sum(fixed.values(), Decimal(0))
    return (
        *(_part(name, fixed.get(name, Decimal(0)), totals, basis) for name, totals, basis in parts),
        _part(ALL, booked, together, rests_on),
    )


_FIXED: Final = {
    "booked": "the books of the month: invoiced, metered, added",
    "running": "machines that still run, until now: no entry has them yet",
}


def _part(name: str, fixed: Decimal, totals: Floats, rests_on: str) -> ForecastPart:
    low, high = np.quantile(totals, _ENDS)
    amounts = [fixed + Decimal(float(each)) for each in (low, totals.mean(), high)]
    low_usd, middle_usd, high_usd = (each.quantize(_CENT) for each in amounts)
    return ForecastPart(name, low_usd, middle_usd, high_usd, rests_on)


def _basis_of_nights(days: int) -> str:
    weeks = days // _WEEK
    if weeks < _LEAST_WEEKS:
        return f"only {days} days of usage, fewer than {_LEAST_WEEKS} weeks: no weekdays, no trend, a wide range"
    return f"the last {weeks} weeks of usage, drawn whole, with their trend"


def _fill_days(costs: Iterable[DailyCost], today: int) -> Floats:
    """Return the cost of each day before today, from the first that has any, of at most 13 weeks."""
    by_day: dict[int, float] = {}
    for each in costs:
        if today - HISTORY_DAYS <= each.day < today:
            by_day[each.day] = by_day.get(each.day, 0.0) + each.cost
    return np.array([by_day.get(day, 0.0) for day in range(min(by_day, default=today), today)])


def _spread_orders(ordered: Iterable[OrderedCost], now: datetime, days: int) -> Floats:
    """Return what is ordered for each of the days from today on, after ``now``."""
    costs = np.zeros(days)
    midnight = datetime.combine(now.date(), datetime.min.time(), now.tzinfo)
    for each in ordered:
        for day in range(days):
            begin = max(each.start, now, midnight + day * _DAY)
            end = min(each.end, midnight + (day + 1) * _DAY)
            if begin < end:
                costs[day] += each.cost * ((end - begin) / (each.end - each.start))
    return costs


def _draw_charges(
    charges: Sequence[DailyCost], today: int, month: Month, draw: np.random.Generator
) -> tuple[Floats, list[str]]:
    """Return what charges are still to come in each draw, and their dates in words.

    A charge recurs that both months before have, at an amount of an earlier month; one that only the last has recurs in
    half of the draws.
    """
    earlier = [str(_month_before(month)), str(_month_before(_month_before(month)))]
    totals, due = np.zeros(_DRAWS), []
    series = sorted({each.series for each in charges}, key=str)
    for name in series:
        own = [each for each in charges if each.series == name]
        amounts: dict[str, float] = {}
        for each in own:
            amounts[each.month] = amounts.get(each.month, 0.0) + each.cost
        booked = amounts.pop(str(month), 0.0)
        is_sure = all(amounts.get(each) for each in earlier)
        if not is_sure and not (amounts.get(earlier[0]) and own[0].category in _USUALLY_RECURRING):
            continue
        last = max(date_of_day(each.day).day for each in own if each.month in earlier)
        if last + _GRACE_DAYS < date_of_day(today).day:
            continue
        drawn = draw.choice([amount for amount in amounts.values() if amount], _DRAWS)
        to_come = np.where(drawn > 0, np.maximum(drawn - booked, 0), np.minimum(drawn - booked, 0))
        if to_come.any():
            totals += to_come if is_sure else to_come * (draw.random(_DRAWS) < 0.5)
            words = own[0].category.lower() if is_sure else f"{own[0].category.lower()} seen once, so in half of draws"
            due.append(f"{words}, until day {last}")
    return totals, due


def _month_before(month: Month) -> Month:
    return Month.of(month.begins - _DAY)


def _draw_nights(nights: Floats, days: int, draw: np.random.Generator) -> Floats:
    """Return the cost of each of the days to come, by draw and day.

    Whole weeks are drawn, so that weekdays and bursts of days stay what they are; each draw fits its trend again to
    weeks that are drawn, too, for the trend is not known better than that.
    """
    weeks = len(nights) // _WEEK
    if weeks < _LEAST_WEEKS:
        return _draw_single_days(nights, days, draw)
    costs = np.maximum(nights[-_WEEK * weeks :].reshape(weeks, _WEEK), 0)
    sums = costs.sum(1)
    if not sums.any():
        return np.zeros((_DRAWS, days))
    fitted = np.maximum(_fit_trend(sums[None], np.arange(weeks))[0], 0.02 * sums.mean())
    # Weeks as shares of what the trend has for them, by weekday; further from their mean than they were, because the
    # trend was fitted to them.
    shares = costs / fitted[:, None]
    usual = shares.mean(0)
    shares = np.maximum(usual + (shares - usual) * np.sqrt(weeks / (weeks - 2)) * _SPREAD, 0)
    shares /= shares.sum(1).mean()
    past = shares.sum(1)[draw.integers(0, weeks, (_DRAWS, weeks))] * fitted * (sums.sum() / fitted.sum())
    level = _fit_trend(past, np.concatenate([np.arange(weeks), weeks - 0.5 + (np.arange(days) + 0.5) / _WEEK]))
    level *= (past.sum(1) / np.maximum(level[:, :weeks].sum(1), 1e-12))[:, None]
    drawn = shares[draw.integers(0, weeks, (_DRAWS, -(-days // _WEEK)))].reshape(_DRAWS, -1)[:, :days]
    result: Floats = level[:, weeks:] * drawn
    return result


def _draw_single_days(nights: Floats, days: int, draw: np.random.Generator) -> Floats:
    """Return draws of single days around a mean that is drawn, too, wider the fewer days there are."""
    count, mean = len(nights), nights.mean()
    wider = _SPREAD * np.sqrt((count + 1) / (count - 1)) * (1 + 3 / count)
    means = draw.choice(nights, (_DRAWS, count)).mean(1)[:, None] - mean
    drawn: Floats = mean + wider * (draw.choice(nights, (_DRAWS, days)) - mean + means)
    return drawn


def _fit_trend(sums: Floats, at: Floats | np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
    """Return the trend of weekly sums (by draw and week) at the given weeks: a line in a power of dollars.

    Recent weeks weigh more. The slope is drawn towards none by its squared error over its square.
    """
    powers, weeks = sums**_TREND_POWER, np.arange(sums.shape[1])
    weights = 0.5 ** ((weeks[-1] - weeks) / _HALF_LIFE_WEEKS)
    weights /= weights.sum()
    distance = weeks - weights @ weeks
    mean, spread = powers @ weights, weights @ distance**2
    slope = (powers - mean[:, None]) @ (weights * distance) / spread
    error = powers - mean[:, None] - slope[:, None] * distance
    effective = 1 / (weights**2).sum()
    variance = (error**2) @ weights * effective / (effective - 2)
    squared_error = variance * (weights**2 @ distance**2) / spread**2
    slope = slope * np.maximum(1 - _TREND_SHRINKAGE * squared_error / np.maximum(slope**2, 1e-12), 0)
    line = mean[:, None] + slope[:, None] * (at - weights @ weeks)
    trend: Floats = np.maximum(line, 0) ** (1 / _TREND_POWER)
    return trend
