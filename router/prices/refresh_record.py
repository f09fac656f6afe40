"""Remember how the last refresh of each cloud ended, beside the books: what answered, what failed and why.

A file of JSON with a record per cloud; a refresh replaces the records of the clouds that it asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pricing.atomic_file import make_private_folder, write_atomic
from router.prices.bookstore import BookStore
from router.prices.report import CloudReport, RefreshReport

_FILE = "refreshed.json"
SCHEMA_VERSION = 1
# Failures of one cloud that are kept; the same failure of sixty regions tells no more than of ten.
MOST_FAILURES = 20


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Something that could not be fetched: where, of what (or ""), why, and what to do about it."""

    where: str
    what: str
    error: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """How the last refresh of a cloud ended.

    ``offers`` were fetched, ``kept`` stay from before, ``dropped`` rows could not be used, ``held`` looked wrong.
    ``failures`` has the first of ``failed``.
    """

    cloud: str
    at: datetime
    status: str
    scopes_done: int
    scopes_total: int
    offers: int
    kept: int
    dropped: int
    held: int
    failed: int
    failures: tuple[FailureRecord, ...]


def write_records(store: BookStore, report: RefreshReport) -> None:
    """Write the records of the clouds of a report; those of other clouds stay. OSError."""
    records = dict(read_records(store))
    records |= {cloud.cloud: _record(cloud, report.now) for cloud in report.clouds}
    rows = [{**asdict(record), "at": record.at.isoformat()} for _, record in sorted(records.items())]
    make_private_folder(store.folder)
    document = {"schema_version": SCHEMA_VERSION, "clouds": rows}
    write_atomic(store.folder / _FILE, json.dumps(document, indent=1), mode=0o600)


def read_records(store: BookStore) -> Mapping[str, RefreshRecord]:
    """Return the record of each cloud that was ever refreshed; none where the file is missing or unreadable."""
    try:
        rows = json.loads((store.folder / _FILE).read_text(encoding="utf-8"))["clouds"]
        return {record.cloud: record for record in map(_parse, rows)}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _record(cloud: CloudReport, at: datetime) -> RefreshRecord:
    failures = (*cloud.failures, *cloud.hints)
    return RefreshRecord(
        cloud=cloud.cloud,
        at=at,
        status=cloud.status.value,
        scopes_done=cloud.scopes_done,
        scopes_total=cloud.scopes_total,
        offers=cloud.counts.fresh,
        kept=cloud.counts.kept,
        dropped=sum(group.count for group in cloud.dropped),
        held=len(cloud.held),
        failed=len(failures),
        failures=tuple(
            FailureRecord(each.where, each.what, str(each.error), each.error.remedy)
            for each in failures[:MOST_FAILURES]
        ),
    )


def _parse(row: dict[str, Any]) -> RefreshRecord:
    failures = tuple(FailureRecord(**each) for each in row["failures"])
    at = datetime.fromisoformat(row["at"]).astimezone(UTC)
    return RefreshRecord(**{**row, "at": at, "failures": failures})
