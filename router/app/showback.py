"""Provide what a report needs: the ledger's extract, bills, and what the state and stored quotes know."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.app.bill_views import BooksView, closings
from router.app.close_month import later_corrections
from router.app.month_books import MonthBooks, costs_before, facts_relation, open_month_books
from router.app.outcomes import job_deadlines, quote_results
from router.files.duckdb_session import connect
from router.showback.bill_store import file_sha256
from router.showback.labels import JobLabels
from router.showback.ledger_extract import ExtractManifest, LedgerExtract
from router.showback.report.build import build_report
from router.showback.report.lines import SpendLine, query_lines
from router.showback.report.query import BudgetUse, ReportContext, ReportInputs, ReportQuery
from router.showback.report.rollup_tables import report_months, rollups_of_facts
from router.showback.report.values import CellValue, ShowbackReport

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from router.state.store import StateStore

_DIGITS = 16


def report_of_files(paths: Sequence[Path], query: ReportQuery) -> ShowbackReport:
    """Return the report of FOCUS files alone.

    InvalidInputError: one that is no FOCUS file, or the same contents twice; a group by a label of jobs, which files
    do not have.
    """
    import pyarrow as pa

    if query.asks_labels:
        what = "labels are those of jobs in the state, which files do not have"
        raise InvalidInputError.single(what, field="--group-by", remedy="leave out --from-file, or the label")

    from router.showback.facts_from_focus import read_focus

    digests = [_input_digest(path) for path in paths]
    twice = next((path for path, digest in zip(paths, digests, strict=True) if digests.count(digest) > 1), None)
    if twice is not None:
        raise InvalidInputError.single("is given twice: its rows would count twice", where=str(twice))
    facts = pa.concat_tables([read_focus(path) for path in paths])
    names = ", ".join(path.name for path in paths)
    beside = ReportInputs(
        origin=f"FOCUS: {names}",
        input_hash=_hash(sorted(digests)),
        bills_through=_through(facts),
        warnings=tuple(_other_month_warnings(facts, query)),
    )
    with connect() as connection:
        connection.register("facts", facts)
        return build_report(rollups_of_facts(connection, "facts", report_months(query.month), query.now), query, beside)


@dataclass(frozen=True, slots=True)
class MonthAnswer:
    """The report of a month, and the lines that add up to its totals."""

    report: ShowbackReport
    lines: tuple[SpendLine, ...]


def report_of_ledger(store: StateStore, query: ReportQuery, extracts: Path, bills: Path) -> ShowbackReport:
    """Return the report of :func:`answer_of_ledger` without deadlines, quotes and budgets."""
    return answer_of_ledger(store, query, extracts, bills, None, with_lines=False).report


def answer_of_ledger(
    store: StateStore,
    query: ReportQuery,
    extracts: Path,
    bills: Path,
    quotes: Path | None,
    *,
    with_lines: bool = True,
) -> MonthAnswer:
    """Return the report of the ledger, and where bills were imported, of them and of what they do not have.

    Lines are of the same rows as the report, where they are wanted. The ledger's extract is brought up to date under
    ``extracts``; imported bills lie under ``bills``, and quotes under ``quotes``: without them the report says nothing
    of deadlines, quotes and budgets. Raises StateError, InvalidInputError, OSError.
    """
    earlier = costs_before(store, query, extracts, bills)
    with open_month_books(store, query, extracts, bills) as books:
        books.rollups.add_labels(JobLabels(store).of_jobs(books.rollups.job_digests))
        beside = replace(_report_inputs(store, query, books, quotes), months=earlier)
        if books.aggregates is not None:
            month_facts = books.aggregates(query.basis)
            aggregates = tuple(each for each in month_facts if query.admits(each.team))
            beside = replace(beside, bills_through=books.bills_through, aggregates=aggregates)
        if quotes is not None:
            beside = replace(beside, budgets=_budgets(store, ReportContext(books.rollups, query, beside), books.view))
        report = build_report(books.rollups, query, beside)
        lines = query_lines(ReportContext(books.rollups, query, beside)) if with_lines else ()
    return MonthAnswer(_with_corrections(report, store, extracts, bills, query, books.view), lines)


def _with_corrections(
    report: ShowbackReport, store: StateStore, extracts: Path, bills: Path, query: ReportQuery, view: BooksView
) -> ShowbackReport:
    """Return a closed month's report with a note of its corrections in later books; its figures stay."""
    if view.sealed is None:
        return report

    try:
        notes = tuple(str(each) for each in later_corrections(store, extracts, bills, query))
    except InvalidInputError as error:
        # The seal holds without later books: what cannot be read of them takes nothing from the closed month.
        notes = (f"what later books correct is not known: {error}",)
    head = report.section("head")
    seal: tuple[CellValue, ...] = ("seal", view.sealed.seal_hash)
    noted = replace(head, rows=(*head.rows, seal), notes=(*head.notes, *notes))
    return replace(report, sections=tuple(noted if each is head else each for each in report.sections))


def _budgets(store: StateStore, setting: ReportContext, view: BooksView) -> tuple[BudgetUse, ...]:
    if not store.budgets.all():
        return ()
    from router.app.budgets import budget_figures  # takes a while to import

    return budget_figures(store, setting, view)


def _report_inputs(store: StateStore, query: ReportQuery, books: MonthBooks, quotes: Path | None) -> ReportInputs:
    manifest, bills, as_of = books.manifest, books.bills, books.view.as_of
    seen = () if as_of is None else (as_of.isoformat(),)
    which = f"what was known {as_of:%Y-%m-%d %H:%MZ} of a " if books.past and as_of is not None else ""
    return ReportInputs(
        origin=_origin(query, f"{which}ledger of {manifest.head:,} entries", len(bills)),
        input_hash=_hash([manifest.state, str(manifest.head), manifest.hash, *bills, *seen]),
        past=books.past,
        closed=any(closing.period >= query.month for closing in closings(store, query.as_of)),
        dues={} if quotes is None else job_deadlines(store, query),
        quotes=None if quotes is None else quote_results(store, quotes, query.month, query.as_of, query.admits),
        warnings=tuple(_archive_warnings(store, manifest, query)),
    )


def _origin(query: ReportQuery, ledger: str, bills: int) -> str:
    """Return what the report was made from; one of some teams does not say how much of others there is."""
    if query.teams is not None:
        return "rows of " + (", ".join(sorted(team or "nobody" for team in query.teams)) or "no team")
    return ledger + (f", {bills} bills" if bills else "")


def add_archive(store: StateStore, extracts: Path, path: Path) -> None:
    """Read the entries that an archive holds into the extract, where they are missing.

    StateError for a file that is not what was archived from this ledger.
    """
    from router.state.ledger_file import read_lines

    store.archives.check(path)
    extract = LedgerExtract(extracts, store.id)
    extract.add_archived(store.ledger, (tuple(line[1:]) for line in read_lines(path)))


@contextmanager
def ledger_facts(store: StateStore, extracts: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """Yield a connection, and a relation in it with all facts of the ledger, planned ones too."""
    extract = LedgerExtract(extracts, store.id)
    with extract.current(store.ledger) as manifest, connect() as connection:
        yield connection, facts_relation(connection, extract.folder, manifest, {part.month for part in manifest.parts})


def _archive_warnings(store: StateStore, manifest: ExtractManifest, query: ReportQuery) -> Iterator[str]:
    if not manifest.gaps:
        return
    near = {str(query.month), str(query.before)}
    for archive in store.archives.all():
        months = sorted({month for month, *_ in archive.totals} & near)
        if months:
            count = sum(entries for month, _, entries, _ in archive.totals if month in months)
            yield (
                f"{count:,} entries of {', '.join(months)} were archived to {archive.file} and are not in this report: "
                f"name the file with --archive"
            )


def _other_month_warnings(facts: pa.Table, query: ReportQuery) -> Iterator[str]:
    import pyarrow.compute as pc

    months = pc.unique(facts["month"]).to_pylist()
    if str(query.month) not in months:
        yield f"the files have nothing in the books of {query.month}: {', '.join(sorted(months)) or 'no rows at all'}"


def _through(table: pa.Table) -> datetime | None:
    import pyarrow.compute as pc

    used = table.filter(pc.and_(pc.equal(table["category"], "Usage"), pc.is_null(table["corrects"])))
    found: datetime | None = pc.max(used["end"]).as_py()
    return None if found is None else found.astimezone(UTC)


def _input_digest(path: Path) -> str:
    try:
        if not path.is_file():
            raise InvalidInputError.single("is no file", where=str(path))
        return file_sha256(path)
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]
