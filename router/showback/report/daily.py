"""Build the section of what was spent a day."""

from __future__ import annotations

from decimal import Decimal

from router.showback.report.context import ReportContext
from router.showback.report.rollup_tables import date_of_day
from router.showback.report.values import CellKind, ReportColumn, ReportSection, build_section, sum_known

COLUMNS = (
    ReportColumn("currency", "Currency", rank=0),
    ReportColumn("day", "Day", CellKind.DAY, 0),
    ReportColumn("billed", "Billed", CellKind.MONEY, 0),
    ReportColumn("effective", "Effective", CellKind.MONEY, 0),
    ReportColumn("hours", "Hours", CellKind.AMOUNT, 1),
    ReportColumn("sum", "Sum", CellKind.MONEY, 1),
)


def build_days(context: ReportContext) -> ReportSection:
    """Return a row for each currency and day of the month with costs; ``sum`` includes the days before it."""
    rows = context.cubes.ask(
        f"SELECT currency, day, sum(billed) AS billed, sum(effective) AS effective, sum(hours) AS hours FROM days "
        f"WHERE month = '{context.month}' GROUP BY ALL ORDER BY currency, day"
    )
    sums: dict[str, Decimal | None] = {}
    table = []
    for row in rows:
        sums[row["currency"]] = sum_known((sums.get(row["currency"]), row[context.cost]))
        table.append({**row, "day": date_of_day(row["day"]), "sum": sums[row["currency"]]})
    note = "Costs are spread over the days of their time, in billionths; corrections of closed months are left out."
    return build_section("days", "Day by day", COLUMNS, table, note)
