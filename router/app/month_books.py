"""Open the books of a month as they are counted: metered, invoiced and added costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from router.app.bill_views import BooksView, view_of
from router.files.duckdb_session import connect, parquet_relation, rows_of
from router.ledger.month import Month
from router.showback.bill_store import BillStore
from router.showback.extract_parts import ExtractManifest
from router.showback.ledger_extract import LedgerExtract
from router.showback.report.query import ReportQuery
from router.showback.report.rollup_tables import RollupTables, report_months, rollups_of_extract, rollups_of_facts

if TYPE_CHECKING:
    import duckdb

    from router.state.store import StateStore


def has_bills(store: StateStore, bills: Path, month: Month) -> bool:
    """Return whether a bill, or a correction of closed months, may have rows that count for the month.

    Rows count in the books of the month, or where usage ran over into it.
    """
    view = view_of(store, bills, month)
    ends = (each.bill.end for each in BillStore(bills).bills() if each.bill.id in view.spans)
    return any(each.rows and each.period >= str(month) for each in view.corrections) or any(
        end is None or datetime.fromisoformat(end) > month.begins for end in ends
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBooks:
    """The books of a month as they are counted.

    They are the cubes, their view, the extract of the ledger's part, the ids of the bills that count, and the
    connection of ``facts`` and ``actual`` where there are any. ``past``: the month was open at the requested moment,
    and more was recorded after it.
    """

    cubes: RollupTables
    view: BooksView
    manifest: ExtractManifest
    bills: tuple[str, ...] = ()
    matched: duckdb.DuckDBPyConnection | None = None
    past: bool = False


@contextmanager
def open_month_books(
    store: StateStore, asked: ReportQuery, extracts: Path, bills: Path, reads: Callable[[int], None] = lambda _: None
) -> Iterator[MonthBooks]:
    """Yield the books of the month, for every command that reports its costs.

    They are invoiced where a bill stands, metered elsewhere, and what people added; of a closed month what it was
    closed with. The extract is brought up to date under ``extracts``; bills are those imported under ``bills``. Raises
    StateError, InvalidInputError, OSError.
    """
    from router.app.reconcile import open_matched_books, rollup_matched  # takes a while to import

    extract, months = LedgerExtract(extracts, store.id), report_months(asked.month)
    view = view_of(store, bills, asked.month, asked.as_of)
    later = view.as_of is not None and BillStore(bills).changed_after(view.as_of)
    with extract.current(store.ledger, reads) as manifest:
        later_entries = view.as_of is not None and _recorded_after(extract.folder, manifest, view.as_of)
        past = later or later_entries
        if view.is_empty:
            with connect() as connection:
                if later_entries:
                    facts = facts_relation(connection, extract.folder, manifest, {str(month) for month in months})
                    cubes = rollups_of_facts(connection, view.known(facts), months, asked.now)
                else:  # nothing is added to closed books, so they hold what they were closed with
                    cubes = rollups_of_extract(connection, extract.folder, manifest, months, asked.now)
                yield MonthBooks(cubes=cubes, view=view, manifest=_manifest_upto(manifest, view.head, store), past=past)
            return
    # `open_matched_books` locks the folder itself, and also reads entries that were added meanwhile.
    with open_matched_books(store, extracts, bills, months[-1], view) as (connection, standing, head, _):
        cubes = rollup_matched(connection, months, asked.now)
        known = _manifest_upto(manifest, head, store)
        yield MonthBooks(cubes=cubes, view=view, manifest=known, bills=standing, matched=connection, past=past)


def _manifest_upto(manifest: ExtractManifest, head: int | None, store: StateStore) -> ExtractManifest:
    """Return the manifest of what was read, up to an entry."""
    if head is None:
        return manifest
    return replace(manifest, head=head, hash=store.ledger.hash_at(head) or manifest.hash)


def _recorded_after(folder: Path, manifest: ExtractManifest, as_of: datetime) -> bool:
    """Return whether the ledger has entries that were recorded after a moment."""
    if not manifest.parts:
        return False
    sums = parquet_relation([part.path(folder, "sums") for part in manifest.parts])
    with connect() as connection:
        last: datetime | None = rows_of(connection.sql(f"SELECT max(recorded_at) AS last FROM {sums}"))[0]["last"]
    return last is not None and last > as_of


def facts_relation(
    connection: duckdb.DuckDBPyConnection, folder: Path, manifest: ExtractManifest, months: set[str]
) -> str:
    """Return the DuckDB relation with the facts of the months; an empty one where there are none."""
    from router.showback.facts import COLUMNS

    parts = manifest.of_months(months)
    if parts:
        return parquet_relation([part.path(folder, "facts") for part in parts])
    connection.register("no_ledger", COLUMNS.empty_table())
    return "no_ledger"
