"""Compute the costs of every month of the books, with the figures of its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.app.bill_views import BooksView, segments
from router.app.reconcile import open_matched_books
from router.files.duckdb_session import rows_of
from router.ledger.entry import LedgerEntryKind
from router.ledger.month import Month
from router.showback.facts import FactSource
from router.showback.facts_from_ledger import CATEGORIES
from router.showback.report.rollup_tables import planned_relation, report_months

if TYPE_CHECKING:
    import duckdb

    from router.state.store import StateStore


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
) -> tuple[dict[Month, MonthCosts], bool]:
    """Return each month's costs, on the basis ``billed`` or ``effective``, and whether archived entries are missing.

    Entries that were archived before they were read are in no figure. Raises StateError, InvalidInputError, OSError.
    """
    if not months:
        return {}, False
    *sealed, still_open = segments(store, bills, as_of)
    with open_matched_books(store, extracts, bills, min(months), still_open.view) as (connection, _, _, archived):
        planned, spent = [], _sums(connection, "actual", basis, "source <> 'planned'")
        books = rows_of(connection.sql(_BOOKS))
        for segment in (*sealed, still_open):
            if segment_months := [month for month in months if segment.holds(month)]:
                facts = planned_relation(connection, segment.view.known(_PLANNED), segment_months, now)
                planned += _sums(connection, facts, basis, "true")
    figures = {
        month: MonthCosts(
            _of(planned, month), _of(spent, month), _kinds(row for row in books if row["month"] == str(month))
        )
        for month in months
    }
    for segment in sealed:
        if segment_months := [month for month in months if segment.holds(month)]:
            at_close = _closed_with(store, segment_months, extracts, bills, segment.view, basis)
            figures |= {month: replace(figures[month], spent=at_close[month], sealed=True) for month in segment_months}
    return figures, archived > 0


def _closed_with(
    store: StateStore, months: Sequence[Month], extracts: Path, bills: Path, view: BooksView, basis: str
) -> dict[Month, dict[str, Decimal]]:
    """Return the costs of months that were closed together; the seal has those of the last of them."""
    if view.sealed is not None and months == [view.sealed.period]:
        sums: dict[str, Decimal] = {}
        for row in view.sealed.sealed["figures"]:
            sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + Decimal(row[basis])
        return {months[0]: sums}
    with open_matched_books(store, extracts, bills, report_months(min(months))[-1], view) as (connection, *_):
        spent = _sums(connection, "actual", basis, "source <> 'planned'")
    return {month: _of(spent, month) for month in months}


def _kinds(rows: Iterable[dict[str, Any]]) -> dict[LedgerEntryKind, tuple[int, int, Decimal]]:
    kinds = {name: kind for kind, name in CATEGORIES.items()}
    found = {}
    for row in rows:
        kind = kinds[row["category"]] if row["source"] == FactSource.ADDED else LedgerEntryKind(row["source"])
        found[kind] = (int(row["entries"]), int(row["unpriced"]), row["usd"] or Decimal(0))
    return found


def _sums(connection: duckdb.DuckDBPyConnection, facts: str, basis: str, which: str) -> list[dict[str, Any]]:
    query = f"SELECT month, currency, sum({basis}) AS cost FROM {facts} WHERE {which} GROUP BY ALL ORDER BY ALL"
    return rows_of(connection.sql(query))


def _of(rows: list[dict[str, Any]], month: Month) -> dict[str, Decimal]:
    return {row["currency"]: row["cost"] for row in rows if row["month"] == str(month) and row["cost"] is not None}
