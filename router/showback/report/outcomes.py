"""Build the sections of promises and plans beside their outcomes: budgets, quotes, plans and variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal

from router.showback.report.context import Setting, words
from router.showback.report.query import Variance
from router.showback.report.text import short
from router.showback.report.values import Cell, Column, Kind, Section, less, section

BUDGETS = (
    Column("scope", "Budget of", rank=0),
    Column("currency", "Currency", rank=0),
    Column("budget", "Budget", Kind.MONEY, 0),
    Column("spent", "Spent", Kind.MONEY, 0),
    Column("running", "Running", Kind.MONEY, 2),
    Column("used", "Used", Kind.SHARE, 0),
    Column("forecast", "Forecast", Kind.MONEY, 1),
    Column("hard", "Hard", Kind.FLAG, 1),
    Column("mark", "Mark", rank=0),
)
QUOTES = (
    Column("job", "Job", rank=0),
    Column("quote", "Quote", rank=2),
    Column("cost", "Cost", Kind.MONEY, 0),
    Column("p50", "Half below", Kind.MONEY, 0),
    Column("p90", "9 of 10 below", Kind.MONEY, 0),
    Column("within_p90", "Kept", Kind.FLAG, 0),
    Column("promised", "Promised on time", Kind.SHARE, 1),
    Column("deadline", "Deadline", Kind.MOMENT, 1),
    Column("done_at", "Done at", Kind.MOMENT, 1),
    Column("p50_at", "Half by", Kind.MOMENT, 3),
    Column("p90_at", "9 of 10 by", Kind.MOMENT, 3),
    Column("on_time", "On time", Kind.FLAG, 0),
)
PLANS = (
    Column("job", "Job", rank=0),
    Column("plan", "Plan", rank=0),
    Column("currency", "Currency", rank=0),
    Column("planned", "Planned", Kind.MONEY, 0),
    Column("actual", "Actual", Kind.MONEY, 0),
    Column("difference", "Difference", Kind.MONEY, 0),
    Column("planned_hours", "Hours planned", Kind.AMOUNT, 1),
    Column("actual_hours", "Hours", Kind.AMOUNT, 1),
    Column("planned_steps", "Steps planned", Kind.AMOUNT, 2),
    Column("actual_steps", "Steps", Kind.AMOUNT, 2),
)
VARIANCE = (
    Column("job", "Job", rank=0),
    Column("currency", "Currency", rank=0),
    *(
        Column(name, name.capitalize(), Kind.MONEY, rank)
        for name, rank in (("planned", 0), ("metered", 2), ("invoiced", 0))
    ),
    *(
        Column(f"by_{name}", name.capitalize(), Kind.MONEY, 1)
        for name in ("price", "quantity", "mix", "waste", "unplanned", "credit", "timing")
    ),
)
_SOFT = (Decimal("0.5"), Decimal("0.8"), Decimal(1))
_PLAN_DIGITS = 12


def budgets(context: Setting) -> Section:
    """Return a row for each budget of the month.

    ``mark`` is the last of 50, 80 and 100 % that is passed, or that the forecast is above all of it.
    """
    table: list[dict[str, Cell]] = []
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
        return section("budgets", "Budgets", BUDGETS, table, "Budgets were not looked at.")
    return section("budgets", "Budgets", BUDGETS, table, *_budget_notes(context))


def _budget_notes(context: Setting) -> Iterator[str]:
    """Yield notes on which money counts towards a budget, and which does not."""
    currencies = {each.currency for each in context.beside.budgets or ()}
    if not currencies:
        return
    yield f"Spent: the {context.cost} cost of this report. Used: that, and what machines cost that still run."
    others = context.cubes.ask(
        f"SELECT currency, sum({context.cost}) AS cost FROM sums WHERE {context.spent} "
        f"AND currency NOT IN {words(tuple(sorted(currencies)))} "
        "GROUP BY ALL HAVING cost <> 0 ORDER BY currency"
    )
    for row in others:
        amount = short(row["cost"], Kind.MONEY)
        yield f"In no budget, for it is in another currency: {amount} {row['currency']}."


def quotes(context: Setting) -> Section:
    """Return a row for each accepted quote whose job is over; money in dollars."""
    table: list[dict[str, Cell]] = [
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
    return section("quotes", "Quotes and what came of them", QUOTES, table, *notes)


def plans(context: Setting) -> Section:
    """Return a row for each plan and currency, those first that differ most from what was planned.

    Costs without a plan are in no row.
    """
    rows = context.cubes.ask(
        f"SELECT CASE WHEN count(DISTINCT job) > 1 THEN count(DISTINCT job) || ' jobs' ELSE max(job) END AS job, "
        f"left(plan, {_PLAN_DIGITS}) AS plan, currency, "
        f"sum({context.cost}) FILTER (source = 'planned') AS planned, "
        f"sum({context.cost}) FILTER (source <> 'planned') AS actual, "
        f"sum(hours) FILTER (source = 'planned') AS planned_hours, "
        f"sum(hours) FILTER (source <> 'planned') AS actual_hours, "
        f"sum(useful) FILTER (source = 'planned' AND useful_unit = 'Steps') AS planned_steps, "
        f"sum(useful) FILTER (source <> 'planned' AND useful_unit = 'Steps') AS actual_steps "
        f"FROM sums WHERE month = '{context.month}' AND plan IS NOT NULL GROUP BY ALL ORDER BY plan, currency"
    )
    table = [{**row, "difference": less(row["actual"], row["planned"])} for row in rows]
    table.sort(key=lambda row: -abs(row["difference"] or 0))
    note = "What was planned, and what it came to, stand in the months of their time; what is to come is left out."
    return section("plans", "Plans and what came of them", PLANS, table, note)


def variance(context: Setting) -> Section:
    """Return a row for each reconciled job; its buckets add up to invoiced less planned."""
    table = [_variance_row(each) for each in context.beside.variance or ()]
    notes = () if context.beside.variance is not None else ("No bill was reconciled.",)
    return section("variance", "Planned, metered, invoiced", VARIANCE, table, *notes)


def _variance_row(each: Variance) -> dict[str, Cell]:
    plain_columns = ("job", "currency", "planned", "metered", "invoiced")
    return {name if name in plain_columns else f"by_{name}": amount for name, amount in asdict(each).items()}
