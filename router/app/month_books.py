"""Open the books of a month as they are counted: metered, invoiced and added costs; sums of open months by team."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.app.bill_views import BooksView, Segment, seals, segments, view_of
from router.app.matched_months import MonthMatcher, empty_tables, through_sql
from router.app.reconcile import (
    define_facts,
    finished_orders,
    open_extract,
    open_matched_books,
    planned_cuts,
    rollup_matched,
)
from router.files.duckdb_session import connect, parquet_relation, rows_of
from router.ledger.entry import CostBasis, LedgerEntryKind
from router.ledger.month import Month
from router.showback.bill_store import BillStore
from router.showback.facts import COLUMNS, FactSource
from router.showback.focus.columns import CATEGORY_OF_ENTRY
from router.showback.ledger_extract import ExtractManifest, LedgerExtract
from router.showback.report.groups import MOST_MONTHS
from router.showback.report.query import MonthCost, ReportQuery
from router.showback.report.rollup_tables import (
    RollupTables,
    invoiced_until,
    ordered_lines,
    planned_relation,
    report_months,
    rollups_of_extract,
    rollups_of_facts,
    rollups_of_summed,
    sql_of_teams,
)

if TYPE_CHECKING:
    import duckdb

    from router.showback.reconcile.variance import FactAggregate
    from router.state.periods import PeriodClosing
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

    They are the rollups, their view, the extract of the ledger's part, and the ids of the bills that count. Where any
    counts, ``aggregates`` returns those of the month's facts on a basis, while the books are open; ``bills_through`` is
    until when bills of the month have usage. ``past``: the month was open at the requested moment, and more was
    recorded after it.
    """

    rollups: RollupTables
    view: BooksView
    manifest: ExtractManifest
    bills: tuple[str, ...] = ()
    aggregates: Callable[[CostBasis], tuple[FactAggregate, ...]] | None = None
    bills_through: datetime | None = None
    past: bool = False


@contextmanager
def open_month_books(store: StateStore, query: ReportQuery, extracts: Path, bills: Path) -> Iterator[MonthBooks]:
    """Yield the books of the month, for every command that reports its costs.

    They are invoiced where a bill stands, metered elsewhere, and what people added; of a closed month what it was
    closed with. The extract is brought up to date under ``extracts``; bills are those imported under ``bills``. Raises
    StateError, InvalidInputError, OSError.
    """
    extract, months = LedgerExtract(extracts, store.id), report_months(query.month)
    view = view_of(store, bills, query.month, query.as_of)
    later_bills = view.as_of is not None and BillStore(bills).changed_after(view.as_of)
    with extract.current(store.ledger) as manifest:
        later_entries = view.as_of is not None and _recorded_after(extract.folder, manifest, view.as_of)
        past = later_bills or later_entries
        if view.is_empty:
            with connect() as connection:
                facts = view.known(
                    facts_relation(connection, extract.folder, manifest, {str(month) for month in months})
                )
                later = {part.month for part in manifest.parts if part.month >= str(months[-1])}
                plans = view.known(facts_relation(connection, extract.folder, manifest, later))
                cuts = planned_cuts(store, connection, plans, query.now, view.as_of)
                if later_entries:
                    rollups = rollups_of_facts(connection, facts, months, query.now, cuts)
                else:  # nothing is added to closed books, so they hold what they were closed with
                    rollups = rollups_of_extract(connection, extract.folder, manifest, months, query.now, cuts)
                _add_orders(rollups, store, connection, plans, query)
                _keep_teams(rollups, query)
                yield MonthBooks(
                    rollups=rollups, view=view, manifest=_manifest_upto(manifest, view.head, store), past=past
                )
            return
    # Both lock the folder themselves, and also read entries that were added meanwhile.
    opened = _open_matched(store, query, extracts, bills, view)
    if view.sealed is not None:
        opened = _open_sealed(store, query, extracts, bills, view, manifest)
    with opened as books:
        _keep_teams(books.rollups, query)
        yield replace(books, past=past)


@contextmanager
def _open_matched(
    store: StateStore, query: ReportQuery, extracts: Path, bills: Path, view: BooksView
) -> Iterator[MonthBooks]:
    """Yield the books of an open month, from months that are matched one by one and kept."""
    from router.showback.reconcile.variance import aggregate_summed

    months = report_months(query.month)
    with open_extract(store, extracts) as (connection, folder, manifest):
        matched = MonthMatcher(store, bills, view, connection, folder, manifest).match(months)
        tables = empty_tables("no_facts", query.month)
        for name in ("sums", "days"):
            tables[name] = _united(tables[name], *(each.tables[name] for each in matched.values()))
        if (own := matched.get(query.month)) is not None:
            tables |= {name: own.tables[name] for name in ("corrections", "sides")}
        later = {part.month for part in manifest.parts if part.month >= str(months[-1])}
        facts = f"(FROM {view.known(facts_relation(connection, folder, manifest, later))} WHERE source = 'planned')"
        invoiced = invoiced_until(connection, tables["sums"], "last_end")
        cuts = planned_cuts(store, connection, facts, query.now, view.as_of, invoiced)
        planned = planned_relation(connection, facts, [query.month], query.now, cuts)
        rollups = rollups_of_summed(connection, tables, facts, months, query.now, cuts)
        _add_orders(rollups, store, connection, facts, query)
        yield MonthBooks(
            rollups=rollups,
            view=view,
            manifest=manifest,
            bills=view.ids,
            aggregates=lambda basis: aggregate_summed(connection, basis, planned=planned, summed=tables["sides"]),
            bills_through=None if own is None else own.through,
        )


@contextmanager
def _open_sealed(
    store: StateStore, query: ReportQuery, extracts: Path, bills: Path, view: BooksView, manifest: ExtractManifest
) -> Iterator[MonthBooks]:
    """Yield the books of a closed month: all that it was closed with, matched at once."""

    from router.showback.reconcile.variance import aggregate_facts

    months, month = report_months(query.month), str(query.month)
    with open_matched_books(store, extracts, bills, months[-1], view) as (connection, standing, head, _):
        invoiced = invoiced_until(connection, "actual")
        cuts = planned_cuts(store, connection, "facts", query.now, view.as_of, invoiced)
        planned = planned_relation(connection, "facts", [query.month], query.now, cuts)
        (through,) = rows_of(connection.sql(through_sql("facts", query.month)))
        yield MonthBooks(
            rollups=rollup_matched(connection, months, query.now, cuts),
            view=view,
            manifest=_manifest_upto(manifest, head, store),
            bills=standing,
            aggregates=lambda basis: aggregate_facts(connection, basis, planned=planned, month=month),
            bills_through=through["through"],
        )


def _add_orders(
    rollups: RollupTables, store: StateStore, connection: duckdb.DuckDBPyConnection, plans: str, query: ReportQuery
) -> None:
    """Add what is ordered for the rest of the month, which forecasts use."""
    if query.month == Month.of(query.now):
        over = finished_orders(store, connection, plans, query.now)
        rollups.add_orders(ordered_lines(connection, plans, query.month, query.now, over))


def _keep_teams(rollups: RollupTables, query: ReportQuery) -> None:
    if query.teams is not None:
        rollups.keep_teams(query.teams)


def _manifest_upto(manifest: ExtractManifest, head: int | None, store: StateStore) -> ExtractManifest:
    if head is None:
        return manifest
    return replace(manifest, head=head, hash=store.ledger.hash_at(head) or manifest.hash)


def _recorded_after(folder: Path, manifest: ExtractManifest, as_of: datetime) -> bool:
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
    parts = manifest.of_months(months)
    if parts:
        return parquet_relation([part.path(folder, "facts") for part in parts])
    connection.register("no_ledger", COLUMNS.empty_table())
    return "no_ledger"


_BOOKS: Final = """
SELECT month, source, CASE WHEN source = 'added' THEN category END AS category, count(*) AS entries,
       count(*) FILTER (unpriced) AS unpriced, sum(billed) AS usd
FROM facts WHERE source <> 'billed' GROUP BY ALL ORDER BY ALL
"""


_PLANNED: Final = "(FROM facts WHERE source = 'planned')"


@dataclass(frozen=True, slots=True)
class MonthCosts:
    """The costs of a month by currency.

    ``planned`` for its time until now, and ``spent``: invoiced where a bill stands, metered elsewhere, and what people
    added. ``books``: ledger entries in its books, by kind: how many there are, how many of them have no price, and
    their dollars. ``sealed``: these are the figures that the month was closed with.
    """

    planned: Mapping[str, Decimal]
    spent: Mapping[str, Decimal]
    books: Mapping[LedgerEntryKind, tuple[int, int, Decimal]]
    sealed: bool = False


def month_costs(
    store: StateStore,
    months: Sequence[Month],
    extracts: Path,
    bills: Path,
    *,
    basis: str,
    now: datetime,
    as_of: datetime | None,
    teams: frozenset[str] | None = None,
) -> tuple[dict[Month, MonthCosts], bool]:
    """Return each month's costs, on the basis ``billed`` or ``effective``, and whether archived entries are missing.

    Costs are of ``teams`` alone, "" for none, where they are given; ``books`` are always of all.

    Entries that were archived before they were read are in no figure. Raises StateError, InvalidInputError, OSError.
    """
    if not months:
        return {}, False
    *sealed, still_open = segments(store, bills, as_of)
    spent, invoiced = open_costs(store, months, extracts, bills, still_open, basis, teams)
    to_cut = []
    for segment in (*sealed, still_open):
        if held := [month for month in months if segment.holds(month)]:
            closed = segment is not still_open
            until = _invoiced_at_close(store, held, extracts, bills, segment.view) if closed else invoiced
            to_cut.append((segment.view, held, until))
    with open_extract(store, extracts) as (connection, folder, manifest):
        define_facts(connection, store, bills, folder, manifest, str(min(months)), still_open.view, ())
        archived = sum(last - first + 1 for first, last in manifest.gaps)
        planned: list[dict[str, Any]] = []
        books = rows_of(connection.sql(_BOOKS))
        for view, held, until in to_cut:
            lines = view.known(_PLANNED)
            cuts = planned_cuts(store, connection, lines, now, as_of, until)
            facts = planned_relation(connection, lines, held, now, cuts)
            planned += _sums(connection, facts, basis, sql_of_teams(teams))
    figures = {
        month: MonthCosts(
            _of(planned, month), spent.get(month, {}), _kinds(row for row in books if row["month"] == str(month))
        )
        for month in months
    }
    for segment in sealed:
        if segment_months := [month for month in months if segment.holds(month)]:
            at_close = _closed_with(store, segment_months, extracts, bills, segment.view, basis, teams)
            figures |= {month: replace(figures[month], spent=at_close[month], sealed=True) for month in segment_months}
    return figures, archived > 0


def _invoiced_at_close(
    store: StateStore, months: Sequence[Month], extracts: Path, bills: Path, view: BooksView
) -> Mapping[str, datetime]:
    """Return by attempt until when the bills of closed months have its costs, as their report has it.

    It matters only to the planned cost of gangs that ran then and still run.
    """
    alive = store.attempts.find(alive=True, skipped=[])
    if view.is_empty or all(each.made_at is None or each.made_at >= max(months).ends for each in alive):
        return {}
    with open_matched_books(store, extracts, bills, report_months(min(months))[-1], view) as (connection, *_):
        return invoiced_until(connection, "actual")


def open_costs(
    store: StateStore,
    months: Sequence[Month],
    extracts: Path,
    bills: Path,
    still_open: Segment,
    basis: str,
    teams: frozenset[str] | None,
) -> tuple[dict[Month, dict[str, Decimal]], Mapping[str, datetime]]:
    """Return what was spent by currency in open months, and by attempt until when bills have its costs.

    It is invoiced where a bill stands, metered elsewhere, and what people added. Raises StateError, InvalidInputError,
    OSError.
    """
    held = [month for month in months if still_open.holds(month)]
    wanted, as_of = {str(month) for month in held}, still_open.view.as_of
    which = f"source <> 'planned' AND {sql_of_teams(teams)}"
    invoiced: Mapping[str, datetime] = {}
    with open_extract(store, extracts) as (connection, folder, manifest):
        parts = manifest.of_months(wanted)
        if held and not still_open.view.is_empty:
            matched = MonthMatcher(store, bills, still_open.view, connection, folder, manifest).match(held)
            nothing = empty_tables("no_facts", held[0])["sums"]
            spent = _united(nothing, *(each.tables["sums"] for each in matched.values()))
            invoiced = invoiced_until(connection, spent, "last_end")
        elif parts and (as_of is None or not _recorded_after(folder, manifest, as_of)):
            spent = parquet_relation([part.path(folder, "sums") for part in parts])
        else:
            spent = still_open.view.known(facts_relation(connection, folder, manifest, wanted))
        rows = _sums(connection, spent, basis, which)
    return {month: _of(rows, month) for month in held}, invoiced


def costs_before(store: StateStore, query: ReportQuery, extracts: Path, bills: Path) -> tuple[MonthCost, ...]:
    """Return the costs of the reported month and eleven before it, on its basis; sealed ones as they were closed.

    Where the reported month and the one before it are open they are left out: the report has them. Raises StateError,
    InvalidInputError, OSError.
    """
    sealed = {each.period: each for each in seals(store, query.as_of)}
    months = [query.month]
    while len(months) < MOST_MONTHS:
        months.append(Month.of(months[-1].begins - timedelta(microseconds=1)))
    costs = [
        MonthCost(month=str(month), currency=currency, cost=cost, sealed=True)
        for month in months
        if month in sealed
        for currency, cost in _figures_of(sealed[month], query.basis.value, query.teams).items()
    ]
    held = _months_held(store, extracts, bills)
    by_report = {month for month in months[:2] if all(period < month for period in sealed)}
    others = [month for month in months if month not in by_report | sealed.keys() and str(month) in held]
    *_, still_open = segments(store, bills, query.as_of)
    basis, teams = query.basis.value, query.teams
    spent, _ = open_costs(store, others, extracts, bills, still_open, basis, teams)
    costs += [
        MonthCost(month=str(month), currency=currency, cost=cost)
        for month, by_currency in spent.items()
        for currency, cost in by_currency.items()
    ]
    closed = [month for month in others if not still_open.holds(month)]
    figures, _ = month_costs(store, closed, extracts, bills, basis=basis, now=query.now, as_of=query.as_of, teams=teams)
    for month, each in figures.items():
        costs += [
            MonthCost(month=str(month), currency=currency, cost=cost, sealed=each.sealed)
            for currency, cost in each.spent.items()
        ]
    return tuple(sorted(costs, key=lambda cost: (cost.currency, cost.month)))


def _months_held(store: StateStore, extracts: Path, bills: Path) -> set[str]:
    with LedgerExtract(extracts, store.id).current(store.ledger) as manifest:
        held = {part.month for part in manifest.parts}
    return held | {each.bill.end[:7] for each in BillStore(bills).bills() if each.bill.end is not None}


def _figures_of(closing: PeriodClosing, basis: str, teams: frozenset[str] | None) -> dict[str, Decimal]:
    """Return the costs by currency that a month was closed with."""
    sums: dict[str, Decimal] = {}
    for row in closing.sealed["figures"]:
        if teams is not None and (row["team"] or "") not in teams:
            continue
        sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + Decimal(row[basis])
    return sums


def _closed_with(
    store: StateStore,
    months: Sequence[Month],
    extracts: Path,
    bills: Path,
    view: BooksView,
    basis: str,
    teams: frozenset[str] | None,
) -> dict[Month, dict[str, Decimal]]:
    """Return the costs of months that were closed together; the seal has those of the last of them."""
    if view.sealed is not None and months == [view.sealed.period]:
        return {months[0]: _figures_of(view.sealed, basis, teams)}
    with open_matched_books(store, extracts, bills, report_months(min(months))[-1], view) as (connection, *_):
        spent = _sums(connection, "actual", basis, f"source <> 'planned' AND {sql_of_teams(teams)}")
    return {month: _of(spent, month) for month in months}


def _united(*relations: str) -> str:
    return f"({' UNION ALL BY NAME '.join(f'FROM {each}' for each in relations)})"


def _kinds(rows: Iterable[dict[str, Any]]) -> dict[LedgerEntryKind, tuple[int, int, Decimal]]:
    kinds = {name: kind for kind, name in CATEGORY_OF_ENTRY.items()}
    entries_by_kind = {}
    for row in rows:
        kind = kinds[row["category"]] if row["source"] == FactSource.ADDED else LedgerEntryKind(row["source"])
        entries_by_kind[kind] = (int(row["entries"]), int(row["unpriced"]), row["usd"] or Decimal(0))
    return entries_by_kind


def _sums(connection: duckdb.DuckDBPyConnection, facts: str, basis: str, which: str) -> list[dict[str, Any]]:
    query = f"SELECT month, currency, sum({basis}) AS cost FROM {facts} WHERE {which} GROUP BY ALL ORDER BY ALL"
    return rows_of(connection.sql(query))


def _of(rows: list[dict[str, Any]], month: Month) -> dict[str, Decimal]:
    return {row["currency"]: row["cost"] for row in rows if row["month"] == str(month) and row["cost"] is not None}
