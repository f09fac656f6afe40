"""What a month will have cost at its end, as a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal

from router.ledger.month import Month
from router.showback.report.context import Setting
from router.showback.report.rollup_tables import day_number

# Days that are looked at, at most and at least; between the ends lie four of five courses, if days vary as they did.
_DAYS, _LEAST = 28, 4
_SURE = Decimal("1.2816")
_DAY = timedelta(days=1)
_CONTEXT = Context(prec=50)
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Forecast:
    """All None where there is none."""

    low: Decimal | None
    middle: Decimal | None
    high: Decimal | None


def forecasts(setting: Setting, booked: Mapping[str, Decimal | None]) -> tuple[dict[str, Forecast], str]:
    """By currency, and how they were found, or why there are none."""
    now, month = setting.asked.now, setting.asked.month
    if now >= month.ends:
        return {}, "No forecast: the month is over."
    if now < month.begins:
        return {}, "No forecast: the month has not begun."
    if setting.beside.past:
        return {}, "No forecast: this is as of a past moment, after which more was recorded."
    today = day_number(now.date())
    rows = setting.cubes.ask(
        f"SELECT currency, day, sum({setting.cost}) AS cost FROM days WHERE category = 'Usage' AND day < {today} "
        f"AND day >= {today - _DAYS} GROUP BY ALL ORDER BY ALL"
    )
    found = {}
    for currency, sofar in booked.items():
        costs = {row["day"]: row["cost"] or Decimal(0) for row in rows if row["currency"] == currency}
        if sofar is not None and costs:
            found[currency] = forecast(sofar, every_day(costs, today), now, month)
    return found, (
        f"Forecast: what is booked, and for the rest of the month the daily mean of usage on up to {_DAYS} days before "
        f"{now:%Y-%m-%d}; four of five courses lie in the range if days vary as they did."
    )


def daily_by_owner(setting: Setting, currency: str) -> tuple[dict[tuple[str, str | None], dict[int, Decimal]], int]:
    """By team and project ("" where nobody is named) the usage of each day before ``now`` that forecasts look at, and
    the number of the day of now; nothing where no forecast is made."""
    now, month = setting.asked.now, setting.asked.month
    today = day_number(now.date())
    found: dict[tuple[str, str | None], dict[int, Decimal]] = {}
    if not month.begins <= now < month.ends or setting.beside.past:
        return found, today
    rows = setting.cubes.ask(
        f"SELECT coalesce(team, '') AS team, project, day, sum({setting.cost}) AS cost FROM days "
        f"WHERE category = 'Usage' AND currency = '{currency}' AND day < {today} AND day >= {today - _DAYS} "
        f"GROUP BY ALL ORDER BY ALL"
    )
    for row in rows:
        found.setdefault((row["team"], row["project"]), {})[row["day"]] = row["cost"] or Decimal(0)
    return found, today


def every_day(costs: Mapping[int, Decimal], today: int) -> list[Decimal]:
    """Of each day from the first that has any until before today."""
    return [costs.get(day, Decimal(0)) for day in range(min(costs, default=today), today)]


def forecast(booked: Decimal, daily: Sequence[Decimal], now: datetime, month: Month) -> Forecast:
    """``daily``: usage of whole days before ``now``. None on fewer than four: that is no rate."""
    if len(daily) < _LEAST:
        return Forecast(None, None, None)
    context = _CONTEXT
    left = context.divide(Decimal((month.ends - now) // timedelta(seconds=1)), Decimal(_DAY // timedelta(seconds=1)))
    mean = context.divide(sum(daily, Decimal(0)), Decimal(len(daily)))
    squares = sum((context.multiply(each - mean, each - mean) for each in daily), Decimal(0))
    spread = context.sqrt(context.multiply(left, context.divide(squares, Decimal(len(daily) - 1))))
    likely, off = context.multiply(mean, left), context.multiply(_SURE, spread)
    ends = (max(likely - off, Decimal(0)), likely, likely + off)
    low, middle, high = ((booked + each).quantize(_CENT, context=context) for each in ends)
    return Forecast(low, middle, high)
