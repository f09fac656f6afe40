"""Forecast the cost of a month at its end, as a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal

from router.ledger.month import Month
from router.showback.report.query import ReportContext
from router.showback.report.rollup_tables import day_number

# The most and the fewest days that are used. Four of five scenarios lie in the range, if days vary as they did.
_DAYS, _LEAST = 28, 4
_SURE = Decimal("1.2816")
_DAY = timedelta(days=1)
_CONTEXT = Context(prec=50)
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class CostForecast:
    """A range of costs; all None where there is none."""

    low: Decimal | None
    middle: Decimal | None
    high: Decimal | None


def forecast_currencies(
    context: ReportContext, booked: Mapping[str, Decimal | None]
) -> tuple[dict[str, CostForecast], str]:
    """Return the forecasts by currency, and how they were made, or why there are none."""
    now, month = context.query.now, context.query.month
    if now >= month.ends:
        return {}, "No forecast: the month is over."
    if now < month.begins:
        return {}, "No forecast: the month has not begun."
    if context.beside.past:
        return {}, "No forecast: this is as of a past moment, after which more was recorded."
    today = day_number(now.date())
    rows = context.rollups.ask(
        f"SELECT currency, day, sum({context.cost}) AS cost FROM days WHERE {_usage_before(today)} "
        "GROUP BY ALL ORDER BY ALL"
    )
    forecast_of = {}
    for currency, booked_cost in booked.items():
        costs = {row["day"]: row["cost"] or Decimal(0) for row in rows if row["currency"] == currency}
        if booked_cost is not None and costs:
            forecast_of[currency] = forecast_month_end(booked_cost, fill_days(costs, today), now, month)
    return forecast_of, (
        f"Forecast: what is booked, and for the rest of the month the daily mean of usage on up to {_DAYS} days before "
        f"{now:%Y-%m-%d}; four of five courses lie in the range if days vary as they did."
    )


def query_daily_costs(
    context: ReportContext, currency: str
) -> tuple[dict[tuple[str, str | None], dict[int, Decimal]], int]:
    """Return the daily usage that forecasts use, by team and project, and the number of the day of ``now``.

    Team is "" where nobody is named. Days are those before ``now``; there are none where no forecast is made.
    """
    now, month = context.query.now, context.query.month
    today = day_number(now.date())
    costs: dict[tuple[str, str | None], dict[int, Decimal]] = {}
    if not month.begins <= now < month.ends or context.beside.past:
        return costs, today
    rows = context.rollups.ask(
        f"SELECT coalesce(team, '') AS team, project, day, sum({context.cost}) AS cost FROM days "
        f"WHERE currency = '{currency}' AND {_usage_before(today)} GROUP BY ALL ORDER BY ALL"
    )
    for row in rows:
        costs.setdefault((row["team"], row["project"]), {})[row["day"]] = row["cost"] or Decimal(0)
    return costs, today


def _usage_before(today: int) -> str:
    return f"category = 'Usage' AND NOT correction AND day < {today} AND day >= {today - _DAYS}"


def fill_days(costs: Mapping[int, Decimal], today: int) -> list[Decimal]:
    """Return the cost of each day from the first that has any until before today."""
    return [costs.get(day, Decimal(0)) for day in range(min(costs, default=today), today)]


def forecast_month_end(booked: Decimal, daily: Sequence[Decimal], now: datetime, month: Month) -> CostForecast:
    """Return the forecast of the month's end.

    ``daily`` is the usage of whole days before ``now``. None for fewer than four days: that is no rate.
    """
    if len(daily) < _LEAST:
        return CostForecast(None, None, None)
    context = _CONTEXT
    remaining_days = context.divide(
        Decimal((month.ends - now) // timedelta(seconds=1)), Decimal(_DAY // timedelta(seconds=1))
    )
    mean = context.divide(sum(daily, Decimal(0)), Decimal(len(daily)))
    squares = sum((context.multiply(each - mean, each - mean) for each in daily), Decimal(0))
    spread = context.sqrt(context.multiply(remaining_days, context.divide(squares, Decimal(len(daily) - 1))))
    expected, deviation = context.multiply(mean, remaining_days), context.multiply(_SURE, spread)
    ends = (max(expected - deviation, Decimal(0)), expected, expected + deviation)
    low, middle, high = ((booked + each).quantize(_CENT, context=context) for each in ends)
    return CostForecast(low, middle, high)
