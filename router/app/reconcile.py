"""Reconcile bills with the ledger: its extract and the imported bills as facts in one connection, matched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from router.app.bill_views import BooksView, Span, bills_in, corrections_in, view_of
from router.files.duckdb_session import connect, parquet_relation
from router.ledger.month import Month
from router.showback.facts import COLUMNS
from router.showback.facts_from_focus import facts_of_charges
from router.showback.focus.versions import NEWEST, written_columns
from router.showback.ledger_extract import LedgerExtract
from router.showback.reconcile.aggregates import FactAggregate, ReconcileBasis, aggregate_facts
from router.showback.reconcile.matching import reconcile
from router.showback.reconcile.outcome import MatchOutcome, read_outcome
from router.showback.report.rollup_tables import RollupTables, report_months, rollups_of_facts

if TYPE_CHECKING:
    import duckdb

    from router.state.store import StateStore

_BATCH = 65_536
# DuckDB writes what does not fit to temporary files; the process then stays below two gigabytes.
_MEMORY = "1GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthReconciliation:
    """The reconciliation of a month: result of matching, what its variance is computed from, bills, ledger head.

    ``archived`` is the number of entries that had left the ledger before they were read.
    """

    outcome: MatchOutcome
    grains: tuple[FactAggregate, ...]
    bills: tuple[str, ...]
    head: int
    archived: int


def reconcile_month(
    store: StateStore,
    extracts: Path,
    bills: Path,
    month: Month,
    basis: ReconcileBasis,
    now: datetime,
    as_of: datetime | None = None,
) -> MonthReconciliation:
    """Return the reconciliation of a month.

    The ledger's extract under ``extracts`` is brought up to date first. What is planned for after ``now`` is left out,
    and what was recorded after ``as_of``. Raises StateError, InvalidInputError (a bill's file is gone), OSError.
    """
    since = report_months(month)[-1]  # as far back as a report looks, so that both see the same
    view = view_of(store, bills, month, as_of)
    with open_matched_books(store, extracts, bills, since, view) as (connection, standing, head, archived):
        until = max(min(now, month.ends), month.begins)
        return MonthReconciliation(
            outcome=read_outcome(connection, basis, str(month)),
            grains=aggregate_facts(connection, basis, month=str(month), since=month.begins, until=until),
            bills=standing,
            head=head,
            archived=archived,
        )


@contextmanager
def open_matched_books(
    store: StateStore, extracts: Path, bills: Path, since: Month, view: BooksView
) -> Iterator[tuple[duckdb.DuckDBPyConnection, tuple[str, ...], int, int]]:
    """Yield a connection with ``facts`` and ``actual`` of the books from a month on.

    With it come the ids of the bills and corrections in it, the ledger's head, and how many entries had been archived
    unread. Later months are included, because entries that were metered late stand in them. What does not count in the
    ``view`` is left out.
    """
    import duckdb

    bills_counted = tuple(bills_in(view, bills))
    correction_paths = corrections_in(view, store, bills)
    first = str(since)
    with LedgerExtract(extracts, store.id).current(store.ledger) as manifest, connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        with suppress(duckdb.Error):  # in a notebook without widgets there is no bar to disable
            connection.execute("SET enable_progress_bar = false")
        connection.register("no_facts", COLUMNS.empty_table())
        connection.execute("CREATE TABLE bill_facts AS FROM no_facts")
        for standing, path, spans in bills_counted:
            _insert_bill(connection, path, standing.bill.id, first, spans)
        for path in correction_paths:
            connection.execute(
                f"INSERT INTO bill_facts BY NAME FROM {parquet_relation([path])} WHERE month >= $1", [first]
            )
        folder = LedgerExtract(extracts, store.id).folder
        parts = [part.path(folder, "facts") for part in manifest.parts if part.month >= first]
        ledger_facts = view.known(parquet_relation(parts) if parts else "no_facts")
        connection.execute(f"CREATE VIEW facts AS FROM {ledger_facts} UNION ALL BY NAME FROM bill_facts")
        reconcile(connection, "facts")
        names = tuple(sorted((*view.spans, *(each.id for each in view.corrections))))
        head = manifest.head if view.head is None else view.head
        yield connection, names, head, sum(last - first + 1 for first, last in manifest.gaps)


def _insert_bill(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, since: str, spans: Sequence[Span]
) -> None:
    """Insert the rows of a bill in those months, in batches: a bill may be a gigabyte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, row = [column.name for column in written_columns(NEWEST)], 1
    counts = " OR ".join(f"(month > ${2 * n + 2} AND month <= ${2 * n + 3})" for n in range(len(spans)))
    ends = [end for span in spans for end in span]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH, columns=columns):
            connection.register("some_rows", facts_of_charges(pa.Table.from_batches([batch]), name, row, str(path)))
            connection.execute(
                f"INSERT INTO bill_facts FROM some_rows WHERE month >= $1 AND ({counts})", [since, *ends]
            )
            row += batch.num_rows
    connection.unregister("some_rows")


def rollup_matched(connection: duckdb.DuckDBPyConnection, months: Sequence[Month], now: datetime) -> RollupTables:
    """Return the cubes of matched facts (:func:`router.app.reconcile.open_matched_books`)."""
    connection.execute("CREATE TEMP VIEW counted AS FROM actual UNION ALL BY NAME FROM facts WHERE source = 'planned'")
    return rollups_of_facts(connection, "counted", months, now)
