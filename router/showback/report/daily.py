"""Build the section of what was spent a day."""

from __future__ import annotations

from decimal import Decimal

from router.showback.report.context import Setting
from router.showback.report.rollup_tables import day_of
from router.showback.report.values import Column, Kind, Section, added, section

COLUMNS = (
    Column("currency", "Currency", rank=0),
    Column("day", "Day", Kind.DAY, 0),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 0),
    Column("hours", "Hours", Kind.AMOUNT, 1),
    Column("sum", "Sum", Kind.MONEY, 1),
)


def days(context: Setting) -> Section:
    """Return a row for each currency and day of the month with costs; ``sum`` includes the days before it."""
    rows = context.cubes.ask(
        f"SELECT currency, day, sum(billed) AS billed, sum(effective) AS effective, sum(hours) AS hours FROM days "
        f"WHERE month = '{context.month}' GROUP BY ALL ORDER BY currency, day"
    )
    sums: dict[str, Decimal | None] = {}
    table = []
    for row in rows:
        sums[row["currency"]] = added((sums.get(row["currency"]), row[context.cost]))
        table.append({**row, "day": day_of(row["day"]), "sum": sums[row["currency"]]})
    note = "Costs are spread over the days of their time, in billionths; corrections of closed months are left out."
    return section("days", "Day by day", COLUMNS, table, note)
