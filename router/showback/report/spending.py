"""Build the sections of waste by kind, data movement, allocation coverage, and corrections."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from router.ledger.entry import MachineUse
from router.showback.apportion import subtract_known, sum_known
from router.showback.facts import UNALLOCATED
from router.showback.report.query import WASTED, ReportContext
from router.showback.report.rollup_tables import zero_if_unknown
from router.showback.report.values import CellValue, ReportSection, divide_known

WASTE_BY_USE = ReportSection.define(
    "waste",
    "Waste",
    "currency:0 use:0 billed:0 effective:0 share_of_total hours:2 accelerator_hours lost:2 owner:3 most_job:3 most:3 "
    "action:4",
    use="Waste",
    lost="Steps lost",
)
MOVEMENT = ReportSection.define(
    "movement",
    "Data moved and kept",
    "currency:0 what:0 cloud region route:3 quantity:0 unit:0 billed:0 effective share_of_total:2 unpriced:2",
)
COVERAGE = ReportSection.define(
    "coverage",
    "Who owns it",
    "currency:0 what:0 allocated:0 unallocated:0 share:0",
    what="Has a",
)
CORRECTIONS = ReportSection.define(
    "corrections",
    "Corrections",
    "corrects start end:3 team project:4 job:0 cloud:2 what:2 category:3 currency:0 billed:0 effective reason:2 who:3 "
    "reference:4 recorded_at:4 origin:4 row:4",
)

# One sentence a kind, the same in every month.
WASTE_ACTIONS: Final[Mapping[str, str]] = {
    MachineUse.STARTUP.value: "Move less often; use smaller images",
    MachineUse.CHECKPOINT_OVERHEAD.value: "Save checkpoints asynchronously",
    MachineUse.RESTART_LOST_WORK.value: "Save checkpoints more often",
    MachineUse.IDLE_ALLOCATED.value: "Release machines when the job ends",
    MachineUse.FAILED_LAUNCH.value: "Prefer places where gangs were obtained",
    MachineUse.OVERRUN.value: "Profile the job again, or give it a later deadline",
    MachineUse.COMMITMENT_UNUSED.value: "Place more jobs on it, or commit to less",
    MachineUse.RESERVATION_UNUSED.value: "Place more jobs on it, or reserve for a shorter time",
}


def _totals_by_currency(context: ReportContext) -> dict[str, Decimal | None]:
    return {row["currency"]: row["cost"] for row in context.sum_by("currency", "cost")}


def build_waste(context: ReportContext) -> ReportSection:
    """Return a row for each currency and kind of waste that there was, the dearest first.

    ``owner`` is the team with the most of it, ``most_job`` the job in that team with the most, and ``most`` its cost.
    """
    wholes = _totals_by_currency(context)
    rows = context.sum_by(
        "currency, use",
        *("billed", "effective", "hours", "accelerator_hours", "lost"),
        where=f"{context.spent} AND {WASTED}",
        order=f"currency, {context.dearest_first}, use",
    )
    owners = _owners_of_waste(context)
    table = [
        {
            **row,
            "share_of_total": divide_known(row[context.cost], wholes[row["currency"]]),
            **owners.get((row["currency"], row["use"]), {}),
            "action": WASTE_ACTIONS[row["use"]],
        }
        for row in rows
    ]
    unknown = f"{context.spent} AND what = 'machine' AND use IS NULL AND NOT correction"
    notes = ["How busy accelerators were inside their work is not measured."]
    notes += [
        f"Of {row['hours'].normalize():f} hours of machines ({row['currency']}) the use is not known."
        for row in context.sum_by("currency", "hours", where=unknown)
        if row["hours"] and row["hours"] > 0
    ]
    return WASTE_BY_USE.fill(table, *notes)


def _owners_of_waste(context: ReportContext) -> dict[tuple[str, str], dict[str, CellValue]]:
    rows = context.rollups.ask(
        f"WITH jobs AS (SELECT currency, use, coalesce(team, '{UNALLOCATED}') AS owner, "
        f"coalesce(job, '{UNALLOCATED}') AS most_job, sum({context.cost}) AS most FROM sums "
        f"WHERE {context.spent} AND {WASTED} GROUP BY ALL HAVING most IS NOT NULL), "
        f"teams AS (SELECT *, sum(most) OVER (PARTITION BY currency, use, owner) AS of_team FROM jobs) "
        f"SELECT currency, use, owner, most_job, most FROM teams QUALIFY row_number() OVER "
        f"(PARTITION BY currency, use ORDER BY of_team DESC, owner, most DESC, most_job) = 1 ORDER BY ALL"
    )
    return {(row["currency"], row["use"]): {n: row[n] for n in ("owner", "most_job", "most")} for row in rows}


def build_movement(context: ReportContext) -> ReportSection:
    """Return a row for each currency, kind of storage or transfer, and place; transfers by route."""
    wholes = _totals_by_currency(context)
    rows = context.sum_by(
        "currency, what, cloud, region, route, unit",
        *("quantity", "billed", "effective", "unpriced"),
        where=f"{context.spent} AND what IN ('egress', 'storage', 'disk')",
        order=f"currency, what, {context.dearest_first}, cloud, region, route, unit",
    )
    table = [{**row, "share_of_total": divide_known(row[context.cost], wholes[row["currency"]])} for row in rows]
    note = "What trainings read and write themselves is on bills alone."
    return MOVEMENT.fill(table, note)


def build_coverage(context: ReportContext) -> ReportSection:
    """Return how much of a currency has an owner, of four kinds; the rest is on lines of its own everywhere."""
    owners = {"team": "team", "project": "project", "cost_center": "cost center", "job": "job"}
    table: list[dict[str, CellValue]] = []
    sums = ", ".join(f"sum({context.cost}) FILTER ({name} IS NOT NULL) AS {name}" for name in owners)
    rows = context.rollups.ask(
        f"SELECT currency, sum({context.cost}) AS whole, {sums} FROM sums WHERE {context.spent} "
        "GROUP BY ALL ORDER BY currency"
    )
    for row in rows:
        for name, title in owners.items():
            allocated, whole = zero_if_unknown(row[name]), zero_if_unknown(row["whole"])
            table.append(
                {
                    "currency": row["currency"],
                    "what": title,
                    "allocated": allocated,
                    "unallocated": subtract_known(whole, allocated),
                    "share": divide_known(allocated, whole),
                }
            )
    return COVERAGE.fill(table)


def build_corrections(context: ReportContext) -> ReportSection:
    """Return a row for each correction, with its row in the books."""
    rows = context.rollups.ask("SELECT * FROM corrections ORDER BY start, origin, row")
    table = [{**row, "corrects": row["corrects"] or None} for row in rows]
    sums = {row["currency"]: sum_known(r["billed"] for r in rows if r["currency"] == row["currency"]) for row in rows}
    notes = [f"Together {amount.normalize():f} {currency}, billed." for currency, amount in sums.items() if amount]
    if rows:
        notes.append("Of closed months and of this one: a bill does not always say what its refund corrects.")
    return CORRECTIONS.fill(table, *notes)
