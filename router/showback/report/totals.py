"""Build the head of a report, its totals, and what was spent a day."""

from __future__ import annotations

from decimal import Decimal

from router.ledger.entry import CostBasis
from router.showback.apportion import subtract_known, sum_known
from router.showback.report.forecast import CostForecast, forecast_currencies
from router.showback.report.query import ReportContext
from router.showback.report.rollup_tables import date_of_day
from router.showback.report.values import (
    CURRENCY,
    SCHEMA_VERSION,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    define_section,
    divide_known,
)

DAYS = define_section(
    "days",
    "Day by day",
    CURRENCY,
    ReportColumn("day", "Day", CellKind.DAY, 0),
    ReportColumn("billed", "Billed", CellKind.MONEY, 0),
    ReportColumn("effective", "Effective", CellKind.MONEY, 0),
    ReportColumn("hours", "Hours", CellKind.AMOUNT, 1),
    ReportColumn("sum", "Sum", CellKind.MONEY, 1),
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


HEAD = define_section("head", "Showback", ReportColumn("name", "What", rank=0), ReportColumn("value", "", rank=0))

TOTALS = define_section(
    "totals",
    "Totals",
    CURRENCY,
    ReportColumn("billed", "Billed", CellKind.MONEY, 0),
    ReportColumn("effective", "Effective", CellKind.MONEY, 0),
    ReportColumn("list", "At list price", CellKind.MONEY, 4),
    ReportColumn("estimated_share", "Estimated", CellKind.SHARE, 1),
    ReportColumn("running", "Running", CellKind.MONEY, 4),
    ReportColumn("budget", "Budget", CellKind.MONEY, 2),
    ReportColumn("budget_used", "Used", CellKind.SHARE, 2),
    ReportColumn("last_month", "Last month", CellKind.MONEY, 1),
    ReportColumn("change", "Change", CellKind.MONEY, 1),
    ReportColumn("forecast_low", "Forecast from", CellKind.MONEY, 3),
    ReportColumn("forecast", "Forecast", CellKind.MONEY, 3),
    ReportColumn("forecast_high", "Forecast to", CellKind.MONEY, 3),
    ReportColumn("facts", "Rows", CellKind.COUNT, 4),
    ReportColumn("unpriced", "Unpriced rows", CellKind.COUNT, 4),
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
