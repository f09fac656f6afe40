"""Build the sections of waste by kind, data movement, allocation coverage, and corrections of closed months."""

from __future__ import annotations

from decimal import Decimal

from router.showback.report.context import WASTE, Setting, words
from router.showback.report.rollup_tables import zero
from router.showback.report.values import Cell, Column, Kind, Section, added, less, ratio, section

WASTED = (
    Column("currency", "Currency", rank=0),
    Column("use", "Waste", rank=0),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 0),
    Column("share_of_total", "Share", Kind.SHARE, 1),
    Column("hours", "Hours", Kind.AMOUNT, 2),
    Column("accelerator_hours", "Acc. hours", Kind.AMOUNT, 1),
    Column("lost", "Steps lost", Kind.AMOUNT, 2),
)
MOVED = (
    Column("currency", "Currency", rank=0),
    Column("what", "What", rank=0),
    Column("cloud", "Cloud", rank=1),
    Column("region", "Region", rank=1),
    Column("route", "Route", rank=3),
    Column("quantity", "Quantity", Kind.AMOUNT, 0),
    Column("unit", "Unit", rank=0),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 1),
    Column("share_of_total", "Share", Kind.SHARE, 2),
    Column("unpriced", "Unpriced rows", Kind.COUNT, 2),
)
COVERAGE = (
    Column("currency", "Currency", rank=0),
    Column("what", "Has a", rank=0),
    Column("allocated", "With", Kind.MONEY, 0),
    Column("unallocated", "Without", Kind.MONEY, 0),
    Column("share", "Covered", Kind.SHARE, 0),
)
CORRECTIONS = (
    Column("corrects", "Corrects", rank=1),
    Column("start", "From", Kind.MOMENT, 1),
    Column("end", "Until", Kind.MOMENT, 3),
    Column("team", "Team", rank=1),
    Column("project", "Project", rank=4),
    Column("job", "Job", rank=0),
    Column("cloud", "Cloud", rank=2),
    Column("what", "What", rank=2),
    Column("category", "Category", rank=3),
    Column("currency", "Currency", rank=0),
    Column("billed", "Billed", Kind.MONEY, 0),
    Column("effective", "Effective", Kind.MONEY, 1),
    Column("reason", "Why", rank=2),
    Column("who", "Who", rank=3),
    Column("reference", "Document", rank=4),
    Column("recorded_at", "Recorded", Kind.MOMENT, 4),
    Column("origin", "From", rank=4),
    Column("row", "Row", Kind.COUNT, 4),
)


def _totals_by_currency(context: Setting) -> dict[str, Decimal | None]:
    rows = context.cubes.ask(
        f"SELECT currency, sum({context.cost}) AS cost FROM sums WHERE {context.spent} GROUP BY ALL"
    )
    return {row["currency"]: row["cost"] for row in rows}


def waste(context: Setting) -> Section:
    """Return a row for each currency and kind of waste that there was, the dearest first."""
    wholes = _totals_by_currency(context)
    rows = context.cubes.ask(
        f"SELECT currency, use, sum(billed) AS billed, sum(effective) AS effective, sum(hours) AS hours, "
        f"sum(gpu_hours) AS accelerator_hours, sum(lost) AS lost FROM sums "
        f"WHERE {context.spent} AND use IN {words(WASTE)} GROUP BY ALL "
        f"ORDER BY currency, sum({context.cost}) DESC NULLS LAST, use"
    )
    table = [{**row, "share_of_total": ratio(row[context.cost], wholes[row["currency"]])} for row in rows]
    unknown_use = context.cubes.ask(
        f"SELECT currency, sum(hours) AS hours FROM sums WHERE {context.spent} AND what = 'machine' "
        f"AND use IS NULL AND NOT correction GROUP BY ALL HAVING sum(hours) > 0 ORDER BY currency"
    )
    notes = ["How busy accelerators were inside their work is not measured."]
    notes += [
        f"Of {row['hours'].normalize():f} hours of machines ({row['currency']}) the use is not known."
        for row in unknown_use
    ]
    return section("waste", "Waste", WASTED, table, *notes)


def movement(context: Setting) -> Section:
    """Return a row for each currency, kind of storage or transfer, and place; transfers by route."""
    wholes = _totals_by_currency(context)
    rows = context.cubes.ask(
        f"SELECT currency, what, cloud, region, route, unit, sum(quantity) AS quantity, sum(billed) AS billed, "
        f"sum(effective) AS effective, coalesce(sum(facts) FILTER (unpriced), 0)::BIGINT AS unpriced FROM sums "
        f"WHERE {context.spent} AND what IN ('egress', 'storage', 'disk') GROUP BY ALL "
        f"ORDER BY currency, what, sum({context.cost}) DESC NULLS LAST, cloud, region, route, unit"
    )
    table = [{**row, "share_of_total": ratio(row[context.cost], wholes[row["currency"]])} for row in rows]
    note = "What trainings read and write themselves is on bills alone."
    return section("movement", "Data moved and kept", MOVED, table, note)


def coverage(context: Setting) -> Section:
    """Return how much of a currency has an owner, of four kinds; the rest is on lines of its own everywhere."""
    owners = {"team": "team", "project": "project", "cost_center": "cost center", "job": "job"}
    table: list[dict[str, Cell]] = []
    sums = ", ".join(f"sum({context.cost}) FILTER ({name} IS NOT NULL) AS {name}" for name in owners)
    rows = context.cubes.ask(
        f"SELECT currency, sum({context.cost}) AS whole, {sums} FROM sums WHERE {context.spent} "
        "GROUP BY ALL ORDER BY currency"
    )
    for row in rows:
        for name, title in owners.items():
            allocated, whole = zero(row[name]), zero(row["whole"])
            table.append(
                {
                    "currency": row["currency"],
                    "what": title,
                    "allocated": allocated,
                    "unallocated": less(whole, allocated),
                    "share": ratio(allocated, whole),
                }
            )
    return section("coverage", "Who owns it", COVERAGE, table)


def corrections(context: Setting) -> Section:
    """Return a row for each correction, with its row in the books."""
    rows = context.cubes.ask("SELECT * FROM corrections ORDER BY start, origin, row")
    table = [{**row, "corrects": row["corrects"] or None} for row in rows]
    sums = {row["currency"]: added(r["billed"] for r in rows if r["currency"] == row["currency"]) for row in rows}
    notes = [f"Together {amount.normalize():f} {currency}, billed." for currency, amount in sums.items() if amount]
    return section("corrections", "Corrections of closed months", CORRECTIONS, table, *notes)
