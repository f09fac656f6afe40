"""Build the sections of teams beside last month and their budgets, and of the months on record."""

from __future__ import annotations

from decimal import Decimal

from router.showback.facts import UNALLOCATED
from router.showback.report.outcomes import USED
from router.showback.report.query import ReportContext
from router.showback.report.values import (
    CURRENCY,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    define_section,
    divide_known,
)

TEAMS = define_section(
    "teams",
    "Teams",
    CURRENCY,
    ReportColumn("team", "Team", rank=0),
    ReportColumn("cost", "Cost", CellKind.MONEY, 0),
    ReportColumn("share_of_total", "Share", CellKind.SHARE, 1),
    ReportColumn("waste", "Waste", CellKind.MONEY, 1),
    ReportColumn("last_month", "Last month", CellKind.MONEY, 1),
    ReportColumn("budget", "Budget", CellKind.MONEY, 2),
    ReportColumn("budget_used", "Used", CellKind.SHARE, 2),
    ReportColumn("mark", "Mark", rank=2),
)
MONTHS = define_section(
    "months",
    "Month by month",
    CURRENCY,
    ReportColumn("month", "Month", rank=0),
    ReportColumn("cost", "Cost", CellKind.MONEY, 0),
    ReportColumn("sealed", "Sealed", CellKind.FLAG, 1),
)
MOST_MONTHS = 12


def build_teams(context: ReportContext, budgets: ReportSection) -> ReportSection:
    """Return a row for each currency and team of this month or the last, the dearest first.

    ``cost`` is before anything is shared; 0 where a team has nothing in the month.
    """
    keys = f"month, currency, coalesce(team, '{UNALLOCATED}') AS team"
    rows = context.sum_by(keys, "cost", "waste", where="source <> 'planned'")
    now = {(row["currency"], row["team"]): row for row in rows if row["month"] == context.month}
    before = {(row["currency"], row["team"]): row["cost"] for row in rows if row["month"] == context.before}
    budget_of = {(row["currency"], row["scope"]): row for row in budgets.records()}
    wholes: dict[str, Decimal] = {}
    for (currency, _), row in now.items():
        wholes[currency] = wholes.get(currency, Decimal(0)) + (row["cost"] or Decimal(0))
    table: list[dict[str, CellValue]] = []
    for currency, team in now.keys() | before.keys():
        own = now.get((currency, team))
        spent = Decimal(0) if own is None else own["cost"]
        budget = budget_of.get((currency, f"team {team}"))
        table.append(
            {
                "currency": currency,
                "team": team,
                "cost": spent,
                "share_of_total": divide_known(spent, wholes.get(currency)),
                "waste": None if own is None else own["waste"],
                "last_month": before.get((currency, team)),
                **({} if budget is None else {"budget": budget["budget"], "budget_used": budget["used"]}),
                "mark": None if budget is None else budget["mark"],
            }
        )
    table.sort(key=_dearest_first)
    note = "Before anything is shared. Budgets of projects stand with the budgets."
    used = (USED,) if any(row.get("budget") is not None for row in table) else ()
    return TEAMS.fill(table, note, *used)


def _dearest_first(row: dict[str, CellValue]) -> tuple[str, bool, Decimal, str]:
    cost = row["cost"] if isinstance(row["cost"], Decimal) else None
    return str(row["currency"]), cost is None, -(cost or Decimal(0)), str(row["team"])


def build_months(context: ReportContext) -> ReportSection:
    """Return a row for each currency and month on record, up to twelve and the reported one last."""
    rows = context.sum_by("currency, month", "cost", where="source <> 'planned'")
    known = {(each.month, each.currency): each for each in context.beside.months or ()}
    table: list[dict[str, CellValue]] = [
        {"currency": each.currency, "month": each.month, "cost": each.cost, "sealed": each.sealed}
        for each in known.values()
    ]
    table += [{**row, "sealed": False} for row in rows if (row["month"], row["currency"]) not in known]
    table.sort(key=lambda row: (str(row["currency"]), str(row["month"])))
    note = f"Up to {MOST_MONTHS} months; sealed ones with the figures that they were closed with."
    return MONTHS.fill(table, note)
