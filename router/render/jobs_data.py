"""Jobs and attempts as JSON data and CSV: the document of ``stepfare status`` with what plan and ledger add.

Pure functions; money is exact text, unknown values are null or blank.
"""

from __future__ import annotations

from dataclasses import replace

from router.controller.report.report import AttemptReport, CostLine, GangOutlook, JobReport, JobsReport
from router.files.csv_text import records_csv
from router.render.journal_words import describe_entry
from router.render.record_table import SCHEMA_VERSION, RecordTable, TableColumn, attribute_columns
from router.render.status_text import gang_document, status_document
from router.state.records import JournalEntry, NoticeRecord

_GANG_FIELDS = (
    "attempt", "job", "team", "plan", "number", "state", "waits", "reason", "cloud", "region", "machines",
    "usd_per_hour", "spent_usd", "unpriced", "created_at", "made_at", "met_at", "gone_at", "deadline",
    "planned_finish", "on_time_probability", "expected_end",
)  # fmt: skip
_OUTLOOKS: RecordTable[GangOutlook] = RecordTable(
    (
        TableColumn("deadline", lambda outlook: outlook.deadline),
        TableColumn("planned_finish", lambda outlook: outlook.promise.finish),
        TableColumn("on_time_probability", lambda outlook: outlook.promise.chance),
        TableColumn("expected_end", lambda outlook: outlook.until),
    )
)
_COSTS: RecordTable[CostLine] = RecordTable(
    (
        TableColumn("item", lambda line: line.item),
        TableColumn("use", lambda line: line.use or None),
        TableColumn("where", lambda line: line.where or None),
        TableColumn("quantity", lambda line: str(round(float(line.quantity), 9))),
        *attribute_columns("unit", "usd", "unpriced"),
        TableColumn("waste", lambda line: line.waste, csv=str),
    )
)
_NOTICES: RecordTable[NoticeRecord] = RecordTable(
    attribute_columns("rank", "id", "kind", "source", "seconds", "what", "heard_at")
)
_JOURNAL: RecordTable[JournalEntry] = RecordTable(
    (*attribute_columns("seq", "at", "what"), TableColumn("says", describe_entry)),
)


def outlook_document(outlook: GangOutlook) -> dict[str, object]:
    """Return a gang as in ``stepfare status -o json``, with deadline, planned end, chance, and end at its pace."""
    return {**gang_document(outlook.gang), **_OUTLOOKS.record(outlook)}


def jobs_document(report: JobsReport, limit: int, before: str | None = None) -> dict[str, object] | None:
    """Return the status with the last ``limit`` gangs before an attempt; None where that attempt is not in it.

    The sums are those of all gangs. ``before`` of the answer is for the next part, null at the end.
    """
    ids = [each.gang.attempt.id for each in report.outlooks]
    if before is not None and before not in ids:
        return None
    end = len(ids) if before is None else ids.index(before)
    start = max(0, end - limit)
    return {
        **status_document(replace(report.status, gangs=())),
        "gangs": [outlook_document(each) for each in report.outlooks[start:end]],
        "before": ids[start] if start else None,
    }


def job_document(report: JobReport) -> dict[str, object]:
    """Return a job with all attempts and the exact cost of each."""
    return {
        "schema_version": SCHEMA_VERSION,
        "as_of": report.now.isoformat(),
        "job": report.name,
        "spent_usd": str(report.spent_usd),
        "attempts": [
            {**outlook_document(each.outlook), "metered_usd": _metered(each), "costs": _COSTS.records(each.costs)}
            for each in report.attempts
        ],
    }


def attempt_document(report: AttemptReport) -> dict[str, object]:
    """Return an attempt with machines, notices, journal and exact costs."""
    return {
        "schema_version": SCHEMA_VERSION,
        **outlook_document(report.outlook),
        "metered_usd": _metered(report),
        "costs": _COSTS.records(report.costs),
        "notices": _NOTICES.records(report.notices),
        "journal": _JOURNAL.records(report.journal),
    }


def gangs_as_csv(report: JobsReport) -> str:
    """Return a row per gang."""
    return records_csv(_GANG_FIELDS, (outlook_document(each) for each in report.outlooks))


def attempts_as_csv(report: JobReport) -> str:
    """Return a row per attempt, with what the ledger metered."""
    rows = ({**outlook_document(each.outlook), "metered_usd": _metered(each)} for each in report.attempts)
    return records_csv((*_GANG_FIELDS, "metered_usd"), rows)


def costs_as_csv(report: AttemptReport) -> str:
    """Return a row per item and use of an attempt."""
    return _COSTS.csv(report.costs)


def _metered(report: AttemptReport) -> str | None:
    return str(report.metered_usd) if report.costs else None
