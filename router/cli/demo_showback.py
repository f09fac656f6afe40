"""Cost summary of the demo: a few lines of the report that ``stepfare showback`` makes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from router.app.showback import ReportAdditions, report_of_ledger
from router.ledger.entry import LedgerEntryKind as EntryKind
from router.ledger.month import Month
from router.render.tables import format_table, wrap_text
from router.showback.report.query import ReportQuery
from router.showback.report.text import short_text
from router.showback.report.values import CellKind, CellValue, ShowbackReport, subtract_known
from router.state.store import StateStore

_HEADER = ("TEAM", "JOB", "COST", "WORK", "WASTE", "PER 1000 STEPS", "ON DEMAND", "SAVED, NET")
_WIDTH = 78


def summarize_spending(home: Path, now: datetime) -> str:
    """Return a table of metered costs by team and job for each month, or a sentence without any.

    The state in ``home`` must exist.
    """
    with StateStore.open(f"sqlite:///{home / 'state.db'}", now=now) as store:
        months = sorted({entry.period for entry in store.ledger.entries(kind=EntryKind.METERED)})
        reports = [_report(store, home, month, now) for month in months]
    return "\n".join(line for report in reports for line in summary_lines(report)) or "Nothing was metered."


def _report(store: StateStore, home: Path, month: Month, now: datetime) -> ShowbackReport:
    return report_of_ledger(
        store, ReportQuery(month=month, now=now), home / "extract", home / "bills", ReportAdditions()
    )


def summary_lines(report: ShowbackReport) -> Iterator[str]:
    """Yield a table of jobs with work and waste, waste by kind, and the cost of interruptions; nothing without jobs."""
    jobs = [row for row in report.section("jobs").records() if row["machines"] is not None]
    if not jobs:
        return
    rows = [
        (
            str(row["team"] or "-"),
            str(row["job"]),
            *map(_money, (row["billed"], _work(row), row["waste"])),
            *map(_money, (row["per_1000_steps"], row["on_demand"], row["saved_net"])),
        )
        for row in jobs
    ]
    yield format_table(_HEADER, rows, frozenset(_HEADER[2:]), {})
    kinds = [f"{row['use']} {_money(row['billed'])}" for row in report.section("waste").records()]
    if kinds:
        yield wrap_text(f"waste: {', '.join(kinds)}", "  ", _WIDTH)
    for row in jobs:
        if row["restart_on_demand"]:
            what = (
                f"{row['job']}: spot saved {_money(row['saved'])}; less {_money(row['restart_on_demand'])}, which is "
                "what lost work and new starts, that only interruptions made, would have cost on demand"
            )
            yield wrap_text(what, "  ", _WIDTH)


def _work(job: dict[str, CellValue]) -> Decimal | None:
    return subtract_known(_amount(job["machines"]), _amount(job["waste"]) or Decimal(0))


def _money(cell: CellValue) -> str:
    """Return an amount with four decimals, because a demo costs very little."""
    return short_text(cell, CellKind.MONEY) if cell is None else f"{_amount(cell):.4f}"


def _amount(cell: CellValue) -> Decimal | None:
    return cell if isinstance(cell, Decimal) else None
