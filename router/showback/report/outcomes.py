"""Build the sections of promises and plans beside their outcomes: budgets, quotes, plans and variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal

from router.files.duckdb_session import sql_list
from router.showback.apportion import subtract_known
from router.showback.facts import UNALLOCATED
from router.showback.reconcile.variance import compute_variances
from router.showback.report.query import ReportContext
from router.showback.report.values import CellKind, CellValue, ReportSection, short_text

BUDGETS = ReportSection.define(
    "budgets",
    "Budgets",
    "scope:0 currency:0 budget:0 spent:0 running:0 used:0 forecast hard mark:0",
)
QUOTES = ReportSection.define(
    "quotes",
    "Quotes and what came of them",
    "job:0 quote:2 cost:0 p50:0 p90:0 within_p90:0 promised deadline done_at p50_at:3 p90_at:3 on_time:0",
)
PLANS = ReportSection.define(
    "plans",
    "Plans and what came of them",
    "job:0 plan:0 currency:0 planned:0 actual:0 difference:0 planned_hours actual_hours planned_steps:2 actual_steps:2",
)
VARIANCE = ReportSection.define(
    "variance",
    "Planned, metered, invoiced",
    "job:0 currency:0 planned:0 metered:2 invoiced:0 by_price by_quantity by_mix by_waste by_unplanned by_credit "
    "by_timing",
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
