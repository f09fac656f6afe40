"""Bills laid beside the ledger: its extract and the imported bills as facts in one connection, matched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from router.files.duck import connect, parquet
from router.ledger.month import Month
from router.showback.billstore import BillStore
from router.showback.extract import Extract
from router.showback.facts import COLUMNS
from router.showback.focus.versions import NEWEST, written_columns
from router.showback.focusfacts import facts_of_charges
from router.showback.reconcile.grains import Basis, Grain, grains
from router.showback.reconcile.matching import reconcile
from router.showback.reconcile.outcome import Outcome, outcome

if TYPE_CHECKING:
    import duckdb

    from router.state.store import Store

_BATCH = 65_536
# What does not fit goes to the folder for temporary files; with it the process stays below two gigabytes.
_MEMORY = "1GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Of a month: what matching came to, what its variance is reckoned from, which bills stood and how far the ledger
    went. ``archived``: so many entries had left the ledger before they were read."""

    outcome: Outcome
    grains: tuple[Grain, ...]
    bills: tuple[str, ...]
    head: int
    archived: int


def reconciled(store: Store, extracts: Path, bills: Path, month: Month, basis: Basis, now: datetime) -> Reconciled:
    """The ledger's extract under ``extracts`` is brought up to date first. What is planned for after ``now`` is left
    out. StateError, InvalidInputError (a bill's file is gone), OSError."""
    with matched(store, extracts, bills, month) as (connection, standing, head, archived):
        until = max(min(now, month.ends), month.begins)
        return Reconciled(
            outcome=outcome(connection, basis, str(month)),
            grains=grains(connection, basis, month=str(month), since=month.begins, until=until),
            bills=standing,
            head=head,
            archived=archived,
        )


@contextmanager
def matched(
    store: Store, extracts: Path, bills: Path, month: Month, *, since: Month | None = None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, tuple[str, ...], int, int]]:
    """A connection with ``facts`` and ``actual`` around a month, the ids of the bills in it, the ledger's head, and how
    many entries had been archived unread. Books of later months are there too, for what was metered late stands in
    them; those of the month before, for what ran over its end, or ``since`` another one."""
    import duckdb

    found = {each.bill.id: each for each in BillStore(bills).bills() if each.replaced_by is None}
    BillStore(bills).current()  # refuses where one is gone
    first = str(since or _before(month))
    with Extract(extracts, store.id).current(store.ledger) as manifest, connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        with suppress(duckdb.Error):  # a notebook without widgets has no bar, and cannot be told so
            connection.execute("SET enable_progress_bar = false")
        connection.register("no_facts", COLUMNS.empty_table())
        connection.execute("CREATE TABLE bill_facts AS FROM no_facts")
        for name, standing in sorted(found.items()):
            _take_in(connection, BillStore(bills).path(standing), name, first)
        folder = Extract(extracts, store.id).folder
        parts = [part.path(folder, "facts") for part in manifest.parts if part.month >= first]
        ours = parquet(parts) if parts else "no_facts"
        connection.execute(f"CREATE VIEW facts AS FROM {ours} UNION ALL BY NAME FROM bill_facts")
        reconcile(connection, "facts")
        yield connection, tuple(sorted(found)), manifest.head, sum(last - first + 1 for first, last in manifest.gaps)


def _take_in(connection: duckdb.DuckDBPyConnection, path: Path, name: str, since: str) -> None:
    """The rows of a bill, some at a time: a bill may be a gigabyte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, row = [column.name for column in written_columns(NEWEST)], 1
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH, columns=columns):
            connection.register("some_rows", facts_of_charges(pa.Table.from_batches([batch]), name, row, str(path)))
            connection.execute("INSERT INTO bill_facts FROM some_rows WHERE month >= $1", [since])
            row += batch.num_rows
    connection.unregister("some_rows")


def _before(month: Month) -> Month:
    first = month.month == 1
    return Month(month.year - first, 12 if first else month.month - 1)
