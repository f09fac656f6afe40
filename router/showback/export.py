"""Export the books of a state as a FOCUS file: read in parts, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from router.files.duckdb_session import connect, rows_of
from router.ledger.entry import LedgerEntry
from router.ledger.month import Month
from router.showback.accounts import Showback
from router.showback.bill_charges import charge_of_correction, charges_of_row
from router.showback.facts_from_focus import facts_of_charges
from router.showback.focus.charge_files import WRITERS
from router.showback.focus.columns import NEWEST_NAMES, Charge
from router.showback.focus_from_ledger import ClosedBooks, EntryPart, UnpricedEntries, charges_of_entries
from router.showback.labels import JobLabels
from router.state.ledger_rows import parse_entry
from router.state.store import StateStore

if TYPE_CHECKING:
    import duckdb

_BATCH = 16_384
# More than any correction has.
_MOST_ROWS = 1 << 62
Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export: how many charges were written, and what was left out."""

    charges: int
    unpriced: UnpricedEntries


@dataclass(frozen=True, slots=True)
class ReconciledFacts:
    """A connection with the table ``actual`` (:mod:`router.showback.reconcile.matching`).

    ``bills`` are the files of the bills in it, by the bill's id, and ``corrections`` the ids of the corrections in it.
    """

    connection: duckdb.DuckDBPyConnection
    bills: Mapping[str, Path] = field(default_factory=dict)
    corrections: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExportPart:
    """The months after one and up to another.

    ``months`` are those of them that the ledger has, None: any. ``knows`` tells whether an entry counts, by its number
    and when it was recorded. Without ``matched`` no bill counts.
    """

    after: str = ""
    upto: str = "~"
    months: Sequence[Month] | None = None
    knows: Callable[[int, datetime], bool] = lambda _seq, _recorded_at: True
    matched: ReconciledFacts | None = None


def export_focus(
    store: StateStore,
    path: Path,
    accounts: Showback,
    version: str,
    parts: Iterable[ExportPart] = (ExportPart(),),
    closed: Month | None = None,
) -> ExportResult:
    """Write the charges of the ``parts`` of the books as FOCUS ``version``; the name's ending chooses the form.

    The charges are rows of bills and what they do not have, where there are bills; else the ledger's. ``closed`` is the
    last closed month, which decides what is a correction. The same books and bills give the same file. KeyError for a
    version that is not written, or an ending that is not in :data:`WRITERS`. OSError where the file cannot be written.
    """
    unpriced, labels = UnpricedEntries(), JobLabels(store)
    write = WRITERS[path.suffix.removeprefix(".").lower()]

    def all_charges() -> Iterator[Charge]:
        for part in parts:
            for numbered, books in _entries(store, part, closed):
                of_jobs = labels.of_jobs({entry.job_digest for _, entry in numbered})
                unbilled = None if part.matched is None else _unbilled_parts(numbered, part.matched)
                yield from charges_of_entries(
                    [entry for _, entry in numbered], accounts, books, unpriced, of_jobs, unbilled
                )
            if part.matched is not None:
                yield from _charges_of_bills(part, part.matched, accounts, labels)

    return ExportResult(write(path, all_charges(), version), unpriced)


def _entries(
    store: StateStore, part: ExportPart, closed: Month | None
) -> Iterator[tuple[list[tuple[int, LedgerEntry]], ClosedBooks]]:
    """Yield batches of entries with their numbers, and what decides which of them are corrections."""
    for month in [None] if part.months is None else part.months:
        for rows in store.ledger.batches(period=month):
            numbered = [(int(row[0]), parse_entry(row[1:-2])) for row in rows]
            entries = [(seq, each) for seq, each in numbered if part.knows(seq, each.recorded_at)]
            months = store.ledger.months_of(sorted({entry.corrects for _, entry in entries if entry.corrects}))
            yield entries, ClosedBooks(closed, months)


def _unbilled_parts(
    numbered: Sequence[tuple[int, LedgerEntry]], matched: ReconciledFacts
) -> dict[str, list[EntryPart]]:
    pieces = _pieces(matched, "ledger", numbered[0][0], numbered[-1][0]) if numbered else {}
    names = ("start", "end", "billed", "effective", "useful")
    return {
        entry.key: [EntryPart(*(piece[name] for name in names)) for piece in pieces[seq]]
        for seq, entry in numbered
        if seq in pieces
    }


def _charges_of_bills(
    part: ExportPart, matched: ReconciledFacts, accounts: Showback, labels: JobLabels
) -> Iterator[Charge]:
    for bill, path in sorted(matched.bills.items()):
        yield from _charges_of_bill(bill, path, part, matched, labels)
    for name in matched.corrections:
        for facts in _pieces(matched, name, 1, _MOST_ROWS, part).values():
            for fact in facts:
                digest = fact["job_digest"] or ""
                account = accounts.account(fact["cloud"] or "")
                yield charge_of_correction(fact, account, labels.of_jobs({digest})[digest])


def _charges_of_bill(
    bill: str, path: Path, part: ExportPart, matched: ReconciledFacts, labels: JobLabels
) -> Iterator[Charge]:
    first = 1
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH, columns=NEWEST_NAMES):
            table = pa.Table.from_batches([batch])
            pieces = _pieces(matched, bill, first, first + batch.num_rows - 1, part)
            if pieces:
                of_jobs = labels.of_jobs({each["job_digest"] or "" for facts in pieces.values() for each in facts})
                row_facts = facts_of_charges(table, bill, first, str(path))
                for number, (row, fact) in enumerate(_rows(table, row_facts), first):
                    if number in pieces:
                        yield from charges_of_row(row, fact, pieces[number], of_jobs)
            first += batch.num_rows


def _rows(table: pa.Table, row_facts: pa.Table) -> Iterator[tuple[Fact, Fact]]:
    with connect(ordered=True) as connection:
        yield from zip(rows_of(connection.from_arrow(table)), rows_of(connection.from_arrow(row_facts)), strict=True)


def _pieces(
    matched: ReconciledFacts, origin: str, first: int, last: int, part: ExportPart = ExportPart()
) -> dict[int, list[Fact]]:
    """Return the facts that count of the rows with these numbers, by number, in the order of time."""
    relation = matched.connection.sql(
        'SELECT * FROM actual WHERE origin = $origin AND "row" BETWEEN $first AND $last '
        'AND month > $after AND month <= $upto ORDER BY "row", "start", "end", billed, key',
        params={"origin": origin, "first": first, "last": last, "after": part.after, "upto": part.upto},
    )
    return {number: list(rows) for number, rows in groupby(rows_of(relation), key=lambda row: int(row["row"]))}
