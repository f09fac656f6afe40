"""Reconcile bills with the ledger: its extract and the imported bills as facts in one connection, matched.

Planned lines of a job count whole once it has ended, and only so far where other costs take over. A plan that was
accepted later takes over a job's lines from its own first one, or from its acceptance. A gang that runs is metered
once its machines are gone: what was planned for it counts as far as its costs do, so that a month compares like with
like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.app.bill_views import BooksView, Span, bills_in, corrections_in, counts_in, view_of
from router.app.outcomes import ended_of_plans, ran_at
from router.files.duckdb_session import connect, parquet_relation, rows_of
from router.ledger.entry import CostBasis
from router.ledger.month import Month
from router.showback.bills import ImportedBill
from router.showback.facts import COLUMNS, MONEY, MONEY_SQL
from router.showback.facts_from_focus import facts_of_charges
from router.showback.focus.columns import NEWEST_NAMES
from router.showback.ledger_extract import ExtractManifest, LedgerExtract
from router.showback.reconcile.matching import reconcile
from router.showback.reconcile.outcome import MatchOutcome, read_outcome
from router.showback.reconcile.variance import FactAggregate, aggregate_facts
from router.showback.report.rollup_tables import (
    PlannedCuts,
    PlannedJob,
    RollupTables,
    invoiced_until,
    planned_relation,
    report_months,
    rollups_of_facts,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from router.state.store import StateStore

_BATCH = 65_536
# An insertion takes a sixth of a second, however few rows it has.
_BATCHES_AT_ONCE = 8
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
    basis: CostBasis,
    now: datetime,
    as_of: datetime | None = None,
) -> MonthReconciliation:
    """Return the reconciliation of a month.

    The ledger's extract under ``extracts`` is brought up to date first. What is planned for after ``now`` is left out,
    and what was recorded after ``as_of``. Raises StateError, InvalidInputError (a bill's file is gone), OSError.
    """
    since = report_months(month)[-1]  # as far back as a report looks, so that both see the same
    view = view_of(store, bills, month, as_of)
    with open_matched_books(store, extracts, bills, since, view, levels=True) as (connection, standing, head, archived):
        cuts = planned_cuts(store, connection, "facts", now, as_of, invoiced_until(connection, "actual"))
        planned = planned_relation(connection, "facts", [month], now, cuts)
        return MonthReconciliation(
            outcome=read_outcome(connection, basis, str(month)),
            grains=aggregate_facts(connection, basis, planned=planned, month=str(month)),
            bills=standing,
            head=head,
            archived=archived,
        )


@contextmanager
def open_matched_books(
    store: StateStore, extracts: Path, bills: Path, since: Month, view: BooksView, *, levels: bool = False
) -> Iterator[tuple[duckdb.DuckDBPyConnection, tuple[str, ...], int, int]]:
    """Yield a connection with ``facts`` and ``actual`` of the books from a month on.

    With it come the ids of the bills and corrections in it, the ledger's head, and how many entries had been archived
    unread. Later months are included, because entries that were metered late stand in them. What does not count in the
    ``view`` is left out. Without bills nothing is matched, unless the ``levels`` of matching are asked for.
    """
    with open_extract(store, extracts) as (connection, folder, manifest):
        define_facts(connection, store, bills, folder, manifest, str(since), view)
        if levels or not view.is_empty:
            reconcile(connection, "facts")
        else:
            connection.execute("CREATE TEMP VIEW actual AS FROM facts WHERE source <> 'planned'")
        head = manifest.head if view.head is None else view.head
        yield connection, view.ids, head, sum(last - first + 1 for first, last in manifest.gaps)


@contextmanager
def open_extract(
    store: StateStore, extracts: Path
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path, ExtractManifest]]:
    """Yield a connection, and the ledger's extract, brought up to date: its folder, which is locked, and manifest."""
    import duckdb

    extract = LedgerExtract(extracts, store.id)
    with extract.current(store.ledger) as manifest, connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        with suppress(duckdb.Error):  # in a notebook without widgets there is no bar to disable
            connection.execute("SET enable_progress_bar = false")
        yield connection, extract.folder, manifest


def define_facts(
    connection: duckdb.DuckDBPyConnection,
    store: StateStore,
    bills: Path,
    folder: Path,
    manifest: ExtractManifest,
    first: str,
    view: BooksView,
    only: Collection[str] | None = None,
) -> None:
    """Create the view ``facts`` of the books from the month ``first`` on, as far as they count in the view.

    Of bills and corrections those whose ids are in ``only``, where it is given.
    """
    connection.register("no_facts", COLUMNS.empty_table())
    connection.execute("CREATE TABLE bill_facts AS FROM no_facts")
    read = view
    if only is not None:  # What is not read may be damaged.
        spans_read = {name: spans for name, spans in view.spans.items() if name in only}
        read = replace(view, spans=spans_read, corrections=tuple(each for each in view.corrections if each.id in only))
    for standing, path, spans in bills_in(read, bills):
        insert_bill(connection, path, standing.bill, first, spans)
    for path in corrections_in(read, store, bills):
        connection.execute(f"INSERT INTO bill_facts BY NAME FROM {parquet_relation([path])} WHERE month >= $1", [first])
    parts = [part.path(folder, "facts") for part in manifest.parts if part.month >= first]
    ledger_facts = view.known(parquet_relation(parts) if parts else "no_facts")
    # DuckDB rounds a union to the places of the narrower decimal, which is the ledger's.
    money = ", ".join(f"{field.name}::{MONEY_SQL} AS {field.name}" for field in COLUMNS if field.type == MONEY)
    ledger_facts = f"(SELECT * REPLACE ({money}) FROM {ledger_facts})"
    connection.execute(f"CREATE VIEW facts AS FROM {ledger_facts} UNION ALL BY NAME FROM bill_facts")


def insert_bill(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    bill: ImportedBill,
    since: str,
    spans: Sequence[Span],
    insert: str = "INSERT INTO bill_facts SELECT *",
    within: tuple[datetime, datetime] | None = None,
) -> None:
    """Insert the rows of a bill in those months, in batches: a bill may be a gigabyte.

    ``insert`` is the head of the SQL. Rows ``within`` that time alone, where it is given. Raises InvalidInputError,
    which names the command that takes the bill out, where it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name, month = bill.id, None if bill.start is None else bill.start[:7]
    if month is not None and (month < since or not counts_in(month, spans)):
        return  # All rows of a bill are in the books of its billing period.
    row, tables = 1, list[pa.Table]()
    counts = " OR ".join(f"(month > ${2 * n + 2} AND month <= ${2 * n + 3})" for n in range(len(spans)))
    ends = [end for span in spans for end in span]

    def put() -> None:
        connection.register("some_rows", pa.concat_tables(tables))
        connection.execute(f"{insert} FROM some_rows WHERE month >= $1 AND ({counts})", [since, *ends])
        connection.unregister("some_rows")
        tables.clear()

    try:
        with pq.ParquetFile(path) as file:
            # Threads of Arrow take half a second of a processor to begin with.
            for batch in file.iter_batches(_BATCH, columns=NEWEST_NAMES, use_threads=False):
                rows, following = pa.array(range(row, row + batch.num_rows), pa.int64()), row + batch.num_rows
                if within is not None:
                    mask = _rows_within(batch, within)
                    batch, rows = batch.filter(mask), rows.filter(mask)
                if batch.num_rows:
                    tables.append(facts_of_charges(pa.Table.from_batches([batch]), name, rows, name))
                if len(tables) == _BATCHES_AT_ONCE:
                    put()
                row = following
            if tables:
                put()
    except (InvalidInputError, pa.ArrowException) as error:
        raise unreadable_bill(name, error, row) from None


def unreadable_bill(name: str, error: Exception, row: int = 1) -> InvalidInputError:
    """Return the error of a stored bill that cannot be read, with the command that takes it out."""
    what = error.problems[0].what if isinstance(error, InvalidInputError) else str(error).splitlines()[0]
    where = f"{name}: row {row} or later"
    remedy = (
        f"stepfare bills remove {name} --reason WHY takes it out; then import its file again. A month that was closed "
        "with it needs it back from a backup of the folder"
    )
    return InvalidInputError.single(f"this stored bill {what}", where=where, remedy=remedy)


def _rows_within(batch: pa.RecordBatch, within: tuple[datetime, datetime]) -> pa.Array:
    """Return which rows overlap the time, or do not say when they are: reading them says what is wrong."""
    import pyarrow as pa
    import pyarrow.compute as pc

    start, end = (pc.coalesce(batch[f"ChargePeriod{at}"], batch[f"BillingPeriod{at}"]) for at in ("Start", "End"))
    begins, until = (pa.scalar(moment, start.type) for moment in within)
    return pc.fill_null(pc.and_(pc.less(start, until), pc.greater(end, begins)), fill_value=True)


def rollup_matched(
    connection: duckdb.DuckDBPyConnection, months: Sequence[Month], now: datetime, cuts: PlannedCuts
) -> RollupTables:
    """Return the rollups of matched facts (:func:`router.app.reconcile.open_matched_books`)."""
    connection.execute("CREATE TEMP VIEW counted AS FROM actual UNION ALL BY NAME FROM facts WHERE source = 'planned'")
    return rollups_of_facts(connection, "counted", months, now, cuts)


# Jobs of plans whose lines are still to come, and those of which another plan was accepted later, with its begin.
_TO_COME = """
SELECT DISTINCT plan, job FROM {facts} WHERE source = 'planned' AND "end" > $1 AND plan IS NOT NULL AND job IS NOT NULL
"""
_TAKEN_OVER = """
WITH accepted AS (
    SELECT plan, job, epoch_us(min(recorded_at)) AS accepted_at, least(min(recorded_at), min(start)) AS begins,
           max("end") AS ends
    FROM {facts} WHERE source = 'planned' AND plan IS NOT NULL AND job IS NOT NULL GROUP BY ALL
), followed AS (
    SELECT plan, job, ends, min(begins) OVER later AS until FROM accepted
    WINDOW later AS (PARTITION BY job ORDER BY accepted_at RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
)
SELECT plan, job, until FROM followed WHERE until < ends
"""


def planned_cuts(
    store: StateStore,
    connection: duckdb.DuckDBPyConnection,
    facts: str,
    now: datetime,
    as_of: datetime | None,
    invoiced: Mapping[str, datetime] | None = None,
) -> PlannedCuts:
    """Return by plan and job until when its lines count, by what was known at ``as_of``; None: they count whole.

    Jobs that are not named have lines that count until ``now``. ``facts`` is a relation with all planned lines;
    ``invoiced`` says by attempt until when bills have its costs
    (:func:`router.showback.report.rollup_tables.invoiced_until`).
    """
    cuts: dict[PlannedJob, datetime | None] = {}
    for row in rows_of(connection.sql(_TAKEN_OVER.format(facts=facts))):
        cuts[row["plan"], row["job"]] = row["until"].astimezone(UTC)
    for planned, since in _running_since(store, as_of, invoiced or {}).items():
        earlier = cuts.get(planned)
        cuts[planned] = since if earlier is None else min(earlier, since)
    to_come = {(plan, job) for plan, job in connection.execute(_TO_COME.format(facts=facts), [now]).fetchall()}
    ended = ended_of_plans(store, to_come | cuts.keys(), as_of) if to_come or cuts else ()
    return cuts | dict.fromkeys(ended)


def finished_orders(
    store: StateStore, connection: duckdb.DuckDBPyConnection, facts: str, now: datetime
) -> frozenset[PlannedJob]:
    """Return the plans and jobs of ``facts`` of which nothing is to come: taken over by a later plan, or ended."""
    rows = rows_of(connection.sql(_TAKEN_OVER.format(facts=facts)))
    taken = {(row["plan"], row["job"]) for row in rows if row["until"].astimezone(UTC) <= now}
    to_come = {(plan, job) for plan, job in connection.execute(_TO_COME.format(facts=facts), [now]).fetchall()}
    return ended_of_plans(store, to_come - taken, None) | taken


def _running_since(
    store: StateStore, as_of: datetime | None, invoiced: Mapping[str, datetime]
) -> dict[PlannedJob, datetime]:
    """Return by plan and job since when gangs that run have costs that are neither metered nor invoiced."""
    since: dict[PlannedJob, datetime] = {}
    for attempt in store.attempts.find(alive=as_of is None, skipped=[]):
        begun = attempt.made_at
        if begun is None or not ran_at(attempt, as_of):
            continue
        begun = max(begun, invoiced.get(attempt.id, begun))
        planned = attempt.plan, attempt.job
        since[planned] = min(since.get(planned, begun), begun)
    return since
