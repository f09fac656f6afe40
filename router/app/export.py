"""Export a month's books as a FOCUS file: bills that stand, charges missing from them, entries that people added."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from router.app.bill_views import Segment, bills_in, closings, segments, view_of
from router.ledger.month import Month
from router.showback.accounts import Showback
from router.showback.export import ExportPart, ExportResult, ReconciledFacts, export_focus

if TYPE_CHECKING:
    from router.state.store import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BooksExportRequest:
    """The file to write, of which version of FOCUS, month (None: all) and moment (None: all that is recorded)."""

    path: Path
    version: str
    accounts: Showback
    month: Month | None = None
    as_of: datetime | None = None


def export_books(store: StateStore, request: BooksExportRequest, extracts: Path, bills: Path) -> ExportResult:
    """Write what :func:`router.app.month_books.open_month_books` counts: closed months as they were closed.

    Raises StateError, InvalidInputError (a bill's file is gone), OSError.
    """
    closed = max((each.period for each in closings(store, request.as_of)), default=None)
    with closing(_parts(store, request, extracts, bills)) as parts:
        return export_focus(store, request.path, request.accounts, request.version, parts, closed)


def _parts(store: StateStore, request: BooksExportRequest, extracts: Path, bills: Path) -> Generator[ExportPart]:
    """Yield the requested months, by their view. A part is closed when the next one is asked for."""
    if request.month is not None:
        from router.showback.report.rollup_tables import report_months

        before = str(report_months(request.month)[1])
        view = view_of(store, bills, request.month, request.as_of)
        yield from _part(store, extracts, bills, Segment(before, str(request.month), view), [request.month])
        return
    all_segments, months = segments(store, bills, request.as_of), [one.period for one in store.periods.sums()]
    for segment in all_segments:
        segment_months = sorted({month for month in months if segment.holds(month)})
        yield from _part(store, extracts, bills, segment, None if len(all_segments) == 1 else segment_months)


def _part(
    store: StateStore, extracts: Path, bills: Path, segment: Segment, months: Sequence[Month] | None
) -> Iterator[ExportPart]:
    view = segment.view
    part = ExportPart(segment.after, segment.upto, months, view.knows)
    if view.is_empty:
        yield part
        return
    # These take a while to import.
    from router.app.reconcile import open_matched_books
    from router.showback.report.rollup_tables import report_months

    paths = {standing.bill.id: path for standing, path, _ in bills_in(view, bills)}
    since = report_months(Month.parse(segment.after).next)[-1] if segment.after else Month(1, 1)
    with open_matched_books(store, extracts, bills, since, view) as (connection, *_):
        corrections = [each.id for each in view.corrections]
        yield replace(part, matched=ReconciledFacts(connection, paths, corrections))
