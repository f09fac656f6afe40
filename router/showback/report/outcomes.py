"""Build the sections of promises and plans beside their outcomes: budgets, quotes, plans and variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal

from router.files.duckdb_session import sql_list
from router.showback.apportion import subtract_known
from router.showback.facts import UNALLOCATED
from router.showback.reconcile.variance import VarianceBucket, compute_variances
from router.showback.report.query import ReportContext
from router.showback.report.values import CURRENCY, CellKind, CellValue, ReportColumn, ReportSection, short_text

BUDGETS = ReportSection.define(
    "budgets",
    "Budgets",
    ReportColumn("scope", "Budget of", rank=0),
    CURRENCY,
    ReportColumn("budget", "Budget", CellKind.MONEY, 0),
    ReportColumn("spent", "Spent", CellKind.MONEY, 0),
    ReportColumn("running", "Running", CellKind.MONEY, 0),
    ReportColumn("used", "Used", CellKind.SHARE, 0),
    ReportColumn("forecast", "Forecast", CellKind.MONEY, 1),
    ReportColumn("hard", "Hard", CellKind.FLAG, 1),
    ReportColumn("mark", "Mark", rank=0),
)
QUOTES = ReportSection.define(
    "quotes",
    "Quotes and what came of them",
    ReportColumn("job", "Job", rank=0),
    ReportColumn("quote", "Quote", rank=2),
    ReportColumn("cost", "Cost", CellKind.MONEY, 0),
    ReportColumn("p50", "Half below", CellKind.MONEY, 0),
    ReportColumn("p90", "9 of 10 below", CellKind.MONEY, 0),
    ReportColumn("within_p90", "Kept", CellKind.FLAG, 0),
    ReportColumn("promised", "Promised on time", CellKind.SHARE, 1),
    ReportColumn("deadline", "Deadline", CellKind.MOMENT, 1),
    ReportColumn("done_at", "Done at", CellKind.MOMENT, 1),
    ReportColumn("p50_at", "Half by", CellKind.MOMENT, 3),
    ReportColumn("p90_at", "9 of 10 by", CellKind.MOMENT, 3),
    ReportColumn("on_time", "On time", CellKind.FLAG, 0),
)
PLANS = ReportSection.define(
    "plans",
    "Plans and what came of them",
    ReportColumn("job", "Job", rank=0),
    ReportColumn("plan", "Plan", rank=0),
    CURRENCY,
    ReportColumn("planned", "Planned", CellKind.MONEY, 0),
    ReportColumn("actual", "Actual", CellKind.MONEY, 0),
    ReportColumn("difference", "Difference", CellKind.MONEY, 0),
    ReportColumn("planned_hours", "Hours planned", CellKind.AMOUNT, 1),
    ReportColumn("actual_hours", "Hours", CellKind.AMOUNT, 1),
    ReportColumn("planned_steps", "Steps planned", CellKind.AMOUNT, 2),
    ReportColumn("actual_steps", "Steps", CellKind.AMOUNT, 2),
)
VARIANCE = ReportSection.define(
    "variance",
    "Planned, metered, invoiced",
    ReportColumn("job", "Job", rank=0),
    CURRENCY,
    *(
        ReportColumn(name, name.capitalize(), CellKind.MONEY, rank)
        for name, rank in (("planned", 0), ("metered", 2), ("invoiced", 0))
    ),
    *(ReportColumn(f"by_{bucket.value}", bucket.value.capitalize(), CellKind.MONEY, 1) for bucket in VarianceBucket),
)
USED = "Used: what is spent, and what machines cost that still run."
BUDGETS_UNKNOWN = "Budgets were not looked at."
_SOFT = (Decimal("0.5"), Decimal("0.8"), Decimal(1))
_PLAN_DIGITS = 12


def build_budgets(context: ReportContext) -> ReportSection:
    """Return a row for each budget of the month.

    ``mark`` is the last of 50, 80 and 100 % that is passed, or that the forecast is above all of it.
    """
    table: list[dict[str, CellValue]] = []
    for each in context.beside.budgets or ():
        used = each.used
        threshold = max((mark for mark in _SOFT if used is not None and used >= mark), default=None)
        over = each.forecast is not None and each.forecast > each.budget
        mark = (
            "over" if threshold == 1 else "forecast over" if over else None if threshold is None else f"{threshold:.0%}"
        )
        fields = ("scope", "currency", "budget", "spent", "running", "forecast", "hard")
        table.append({**{name: getattr(each, name) for name in fields}, "used": used, "mark": mark})
    if context.beside.budgets is None:
        return BUDGETS.fill(table, BUDGETS_UNKNOWN)
    return BUDGETS.fill(table, *_budget_notes(context))


def _budget_notes(context: ReportContext) -> Iterator[str]:
    """Yield notes on which money counts towards a budget, and which does not."""
    currencies = {each.currency for each in context.beside.budgets or ()}
    if not currencies:
        return
    yield f"Spent: the {context.cost} cost of this report. {USED}"
    for row in context.sum_by("currency", "cost", where=f"{context.spent} AND currency NOT IN {sql_list(currencies)}"):
        if not row["cost"]:
            continue
        amount = short_text(row["cost"], CellKind.MONEY)
        yield f"In no budget, for it is in another currency: {amount} {row['currency']}."


def build_quotes(context: ReportContext) -> ReportSection:
    """Return a row for each accepted quote whose job is over; money in dollars."""
    table: list[dict[str, CellValue]] = [
        {
            **asdict(each),
            "within_p90": None if each.p90 is None else each.cost <= each.p90,
            "on_time": each.done_at is not None and each.done_at <= each.deadline,
        }
        for each in context.beside.quotes or ()
    ]
    notes = ["Dollars of machines alone, of all months of the job."] if table else []
    if context.beside.quotes is None:
        notes = ["Quotes were not looked at."]
    return QUOTES.fill(table, *notes)


def build_plans(context: ReportContext) -> ReportSection:
    """Return a row for each plan and currency, those first that differ most from what was planned.

    Costs without a plan are in no row.
    """
    amounts = (("", context.cost, "true"), ("_hours", "hours", "true"), ("_steps", "useful", "useful_unit = 'Steps'"))
    sums = ", ".join(
        f"sum({column}) FILTER (source {sign} 'planned' AND {only}) AS {side}{name}"
        for name, column, only in amounts
        for side, sign in (("planned", "="), ("actual", "<>"))
    )
    rows = context.rollups.ask(
        f"SELECT CASE WHEN count(DISTINCT job) > 1 THEN count(DISTINCT job) || ' jobs' ELSE max(job) END AS job, "
        f"left(plan, {_PLAN_DIGITS}) AS plan, currency, "
        f"{sums} "
        f"FROM sums WHERE month = '{context.month}' AND plan IS NOT NULL GROUP BY ALL ORDER BY plan, currency"
    )
    table = [{**row, "difference": subtract_known(row["actual"], row["planned"])} for row in rows]
    table.sort(key=lambda row: -abs(row["difference"] or 0))
    note = "What was planned, and what it came to, stand in the months of their time; what is to come is left out."
    return PLANS.fill(table, note)


def build_variance(context: ReportContext) -> ReportSection:
    """Return a row for each reconciled job; its buckets add up to invoiced less planned."""
    aggregates = context.beside.aggregates
    if aggregates is None:
        return VARIANCE.fill((), "No bill was reconciled.")
    return VARIANCE.fill(
        {
            "job": each.group[0] or UNALLOCATED,
            **{name: getattr(each, name) for name in ("currency", "planned", "metered", "invoiced")},
            **{f"by_{bucket.value}": amount for bucket, amount in each.buckets.items()},
        }
        for each in compute_variances(aggregates, ("job",))
    )
