"""Build the head of a report, its totals with the forecast of the month's end, and what was spent a day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal

from router.ledger.entry import CURRENCY as LEDGER_CURRENCY
from router.ledger.entry import CostBasis
from router.ledger.month import Month
from router.showback.apportion import subtract_known, sum_known
from router.showback.report.query import ReportContext
from router.showback.report.rollup_tables import date_of_day, day_number
from router.showback.report.values import (
    SCHEMA_VERSION,
    CellValue,
    ReportSection,
    divide_known,
)

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


def query_daily_costs(context: ReportContext) -> tuple[dict[tuple[str, str | None], dict[int, Decimal]], int]:
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
        f"WHERE currency = '{LEDGER_CURRENCY}' AND {_usage_before(today)} GROUP BY ALL ORDER BY ALL"
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


DAYS = ReportSection.define(
    "days",
    "Day by day",
    "currency:0 day:0 billed:0 effective:0 hours sum",
)


def build_days(context: ReportContext) -> ReportSection:
    """Return a row for each currency and day of the month with costs; ``sum`` includes the days before it."""
    rows = context.rollups.ask(
        f"SELECT currency, day, sum(billed) AS billed, sum(effective) AS effective, sum(hours) AS hours FROM days "
        f"WHERE month = '{context.month}' GROUP BY ALL ORDER BY currency, day"
    )
    sums: dict[str, Decimal | None] = {}
    table = []
    for row in rows:
        sums[row["currency"]] = sum_known((sums.get(row["currency"]), row[context.cost]))
        table.append({**row, "day": date_of_day(row["day"]), "sum": sums[row["currency"]]})
    note = "Costs stand on the days of their time, corrections of other months on theirs; the last sum is the month's."
    return DAYS.fill(table, note)


HEAD = ReportSection.define(
    "head",
    "Showback",
    "name:0 value:0",
)

TOTALS = ReportSection.define(
    "totals",
    "Totals",
    "currency:0 billed:0 effective:0 list:4 estimated_share running:4 budget:2 budget_used:2 last_month change "
    "forecast_low:3 forecast:3 forecast_high:3 facts:4 unpriced:4",
)

# Every page that names the cost of a month means this.
COUNTED = "invoiced where a bill stands, metered elsewhere; what people added"
_BASES = {CostBasis.BILLED: "billed (cash)", CostBasis.EFFECTIVE: "effective (accrual)"}


def build_head(context: ReportContext) -> ReportSection:
    """Return the subject of the report, what it was made from, and how far that reaches."""
    query, inputs = context.query, context.beside
    summary = context.rollups.ask(
        f"SELECT max(last_end) FILTER (category = 'Usage') AS through, max(recorded_at) AS recorded, "
        f"list(DISTINCT currency ORDER BY currency) AS currencies, "
        f"{context.sums_of('facts', 'unpriced')} FROM sums WHERE {context.spent}"
    )[0]
    through, recorded = summary["through"], summary["recorded"]
    closed = {True: "closed", False: "open", None: "not known"}[inputs.closed]
    rows: list[tuple[str, CellValue]] = [
        ("schema_version", str(SCHEMA_VERSION)),
        ("month", context.month),
        ("books", closed),
        ("by", ", ".join(query.by)),
        ("basis", _BASES[query.basis]),
        ("counted", COUNTED),
        ("sharing", query.share.value),
        ("currencies", ", ".join(summary["currencies"] or ()) or "none"),
        ("made_from", inputs.origin),
        ("input_hash", inputs.input_hash),
        ("made_at", _moment(query.now)),
        ("as_of", "all that is recorded" if query.as_of is None else _moment(query.as_of)),
        ("usage_through", "none" if through is None else _moment(through)),
        ("recorded_through", "not known" if recorded is None else _moment(recorded)),
        ("bills_through", "no bill" if inputs.bills_through is None else _moment(inputs.bills_through)),
        ("rows", f"{summary['facts'] or 0}"),
        ("unpriced_rows", f"{summary['unpriced'] or 0}"),
        ("utilisation", "not measured"),
    ]
    return HEAD.fill(({"name": n, "value": v} for n, v in rows), *inputs.warnings)


def build_totals(context: ReportContext) -> ReportSection:
    """Return a row for each currency of the month."""
    cost = context.cost
    estimated = f"sum({cost}) FILTER (state = 'Estimated' AND source <> 'added') AS estimated"
    rows = context.sum_by(
        f"month, currency, {estimated}",
        *("billed", "effective", "list", "facts", "unpriced"),
        where="source <> 'planned'",
        order="currency",
    )
    before = {row["currency"]: row[cost] for row in rows if row["month"] == context.before}
    budgets = {each.currency: each for each in context.beside.budgets or () if each.scope == "all"}
    running = {currency: each.running for currency, each in budgets.items()}
    booked = {
        row["currency"]: sum_known((row[cost], running.get(row["currency"])))
        for row in rows
        if row["month"] == context.month
    }
    forecast_of, forecast_note = forecast_currencies(context, booked)
    table = []
    for row in rows:
        if row["month"] != context.month:
            continue
        currency = row["currency"]
        forecast, budget = forecast_of.get(currency, CostForecast(None, None, None)), budgets.get(currency)
        table.append(
            {
                **{name: row[name] for name in ("currency", "billed", "effective", "list", "facts", "unpriced")},
                "estimated_share": divide_known(row["estimated"] or Decimal(0), row[cost]),
                "running": running.get(currency),
                "budget": None if budget is None else budget.budget,
                "budget_used": None if budget is None else divide_known(booked[currency], budget.budget),
                "last_month": before.get(currency),
                "change": subtract_known(row[cost], before.get(currency)),
                "forecast_low": forecast.low,
                "forecast": forecast.middle,
                "forecast_high": forecast.high,
            }
        )
    notes = (
        [forecast_note, "Sums leave out unpriced rows: what they cost is not known."]
        if any(row["unpriced"] for row in table)
        else [forecast_note]
    )
    return TOTALS.fill(table, *notes)


def _moment(moment: object) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
