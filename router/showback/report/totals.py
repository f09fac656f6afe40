"""Build the head of a report, its totals with the forecast of the month's end, and what was spent a day."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from router.ledger.entry import CostBasis
from router.showback.apportion import subtract_known, sum_known
from router.showback.report.forecast import LEAST_DAYS, DailyCost, ForecastPart, OrderedCost, forecast_month
from router.showback.report.query import ReportContext, ReportQuery
from router.showback.report.rollup_tables import date_of_day
from router.showback.report.values import (
    SCHEMA_VERSION,
    CellValue,
    ReportSection,
    divide_known,
)

_FORECAST_NOTE = "Forecast: four of five months like this end in its range. Its parts say what they rest on."
# What tells the charges of one kind from others, beside owner and category.
_SERIES = ("cloud", "what", "job")

FORECAST = ReportSection.define(
    "forecast",
    "Forecast by parts",
    "currency:0 part:0 forecast_low:0 forecast:0 forecast_high:0 rests_on:0",
)


@dataclass(frozen=True, slots=True)
class MonthForecasts:
    """The parts of the forecast by currency, the last of which is all; ``note``: how made, or why there are none."""

    parts: Mapping[str, tuple[ForecastPart, ...]]
    note: str

    def total(self, currency: str) -> ForecastPart | None:
        return self.parts[currency][-1] if currency in self.parts else None


def forecast_currencies(context: ReportContext) -> MonthForecasts:
    """Return the forecasts of the month by currency."""
    if reason := _unforecast_reason(context):
        return MonthForecasts({}, f"No forecast: {reason}.")
    costs, running = query_forecast_costs(context), _running_costs(context)
    parts = {}
    for row in context.sum_by("currency", "cost"):
        currency, booked = row["currency"], row["cost"]
        if booked is not None and currency in costs.daily:
            fixed = {"booked": booked, "running": running.get(currency) or Decimal(0)}
            parts[currency] = costs.forecast(currency, fixed)
    made = {currency: each for currency, each in parts.items() if each}
    if not made:
        return MonthForecasts({}, f"No forecast: fewer than {LEAST_DAYS} days of usage are on record.")
    return MonthForecasts(made, _FORECAST_NOTE)


def build_forecast(forecasts: MonthForecasts) -> ReportSection:
    """Return a row for each part of each currency's forecast, and one for all of it."""
    rows: list[dict[str, CellValue]] = [
        {
            "currency": currency,
            "part": part.name,
            "forecast_low": part.low,
            "forecast": part.middle,
            "forecast_high": part.high,
            "rests_on": part.rests_on,
        }
        for currency, parts in forecasts.parts.items()
        for part in parts
    ]
    return FORECAST.fill(rows, forecasts.note)


def _unforecast_reason(context: ReportContext) -> str | None:
    now, month = context.query.now, context.query.month
    if now >= month.ends:
        return "the month is over"
    if now < month.begins:
        return "the month has not begun"
    return "this is as of a past moment, after which more was recorded" if context.beside.past else None


@dataclass(frozen=True, slots=True)
class ForecastCosts:
    """The costs that forecasts of a month use, by currency; empty where none is made."""

    query: ReportQuery
    daily: Mapping[str, Sequence[DailyCost]]
    ordered: Mapping[str, Sequence[OrderedCost]]

    def forecast(
        self,
        currency: str,
        fixed: Mapping[str, Decimal],
        counts: Callable[[str, str | None], bool] = lambda _team, _project: True,
    ) -> tuple[ForecastPart, ...]:
        """Return the parts of the forecast of the teams ("" for none) and projects that count."""
        daily = [each for each in self.daily.get(currency, ()) if counts(each.team, each.project)]
        ordered = [each for each in self.ordered.get(currency, ()) if counts(each.team, each.project)]
        return forecast_month(fixed, daily, ordered, self.query.now, self.query.month)


def query_forecast_costs(context: ReportContext) -> ForecastCosts:
    """Return the costs that forecasts use: usage by owner and day, other charges also by kind, and open orders."""
    daily: dict[str, list[DailyCost]] = {}
    ordered: dict[str, list[OrderedCost]] = {}
    if _unforecast_reason(context) is not None:
        return ForecastCosts(context.query, daily, ordered)
    series = ", ".join(f"CASE WHEN category <> 'Usage' THEN {name} END AS {name}" for name in _SERIES)
    for row in context.rollups.ask(
        f"SELECT currency, coalesce(team, '') AS team, project, category, committed, month, day, {series}, "
        f"sum({context.cost}) AS cost FROM days WHERE NOT correction GROUP BY ALL HAVING cost <> 0 ORDER BY ALL"
    ):
        names = ("team", "project", "category", "month", "day")
        own = (row["team"], row["project"], row["category"], *(row[name] for name in _SERIES))
        each = DailyCost(
            **{name: row[name] for name in names}, series=own, is_committed=row["committed"], cost=float(row["cost"])
        )
        daily.setdefault(row["currency"], []).append(each)
    for row in context.rollups.orders:
        cost = row[context.cost]
        if cost is not None and context.query.admits(row["team"]):
            line = OrderedCost(
                team=row["team"], project=row["project"], start=row["start"], end=row["end"], cost=float(cost)
            )
            ordered.setdefault(row["currency"], []).append(line)
    return ForecastCosts(context.query, daily, ordered)


def _running_costs(context: ReportContext) -> dict[str, Decimal | None]:
    return {each.currency: each.running for each in context.beside.budgets or () if each.scope == "all"}


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


def build_totals(context: ReportContext, forecasts: MonthForecasts) -> ReportSection:
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
    running = _running_costs(context)
    booked = {
        row["currency"]: sum_known((row[cost], running.get(row["currency"])))
        for row in rows
        if row["month"] == context.month
    }
    table = []
    for row in rows:
        if row["month"] != context.month:
            continue
        currency = row["currency"]
        forecast, budget = forecasts.total(currency), budgets.get(currency)
        table.append(
            {
                **{name: row[name] for name in ("currency", "billed", "effective", "list", "facts", "unpriced")},
                "estimated_share": divide_known(row["estimated"] or Decimal(0), row[cost]),
                "running": running.get(currency),
                "budget": None if budget is None else budget.budget,
                "budget_used": None if budget is None else divide_known(booked[currency], budget.budget),
                "last_month": before.get(currency),
                "change": subtract_known(row[cost], before.get(currency)),
                "forecast_low": None if forecast is None else forecast.low,
                "forecast": None if forecast is None else forecast.middle,
                "forecast_high": None if forecast is None else forecast.high,
            }
        )
    notes = (
        [forecasts.note, "Sums leave out unpriced rows: what they cost is not known."]
        if any(row["unpriced"] for row in table)
        else [forecasts.note]
    )
    return TOTALS.fill(table, *notes)


def _moment(moment: object) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
