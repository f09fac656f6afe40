"""Answer what a month cost, from its report down to attempts, for the teams that may be seen."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.app.bill_views import bills_version, is_sealed, seals
from router.app.queries.context import QueryContext
from router.app.showback import MonthAnswer, answer_of_ledger
from router.ledger.month import Month
from router.prices.data_folders import bills_folder, extract_folder, quotes_folder
from router.showback.bill_store import BillStore
from router.showback.ledger_extract import LedgerExtract, without_collector
from router.showback.report.query import MonthQuery, ReportQuery

if TYPE_CHECKING:
    from router.showback.report.values import ShowbackReport

# Reports compare with months before; earlier ones have no costs of machines that anybody rents.
FIRST_MONTH = Month(2000, 1)
LAST_MONTH = Month(9000, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendQuestion(MonthQuery):
    """A query whose one answer can serve until the books change; ``teams`` are those that who asks may see.

    ValueError as for a report's query, and for a month out of reach.
    """

    def __post_init__(self) -> None:
        if not FIRST_MONTH <= self.month <= LAST_MONTH:
            raise ValueError(f"{self.month} is out of reach: from {FIRST_MONTH} to {LAST_MONTH}")
        self.at(self.month.begins)

    def at(self, now: datetime) -> ReportQuery:
        """Return the query as asked at a moment."""
        return ReportQuery(now=now, **{field.name: getattr(self, field.name) for field in fields(self)})


def confine_question(context: QueryContext, question: SpendQuestion) -> SpendQuestion:
    """Return the question for the teams that who asks may see. AccessDeniedError where that is none."""
    return replace(question, teams=seen_teams(context))


def seen_teams(context: QueryContext) -> frozenset[str] | None:
    """Return the teams whose costs who asks may see, None for all. AccessDeniedError where that is none."""
    teams = context.identity.require(Permission.READ_SPEND).teams
    return None if teams is None else teams - {""}


def month_report(context: QueryContext, query: ReportQuery) -> ShowbackReport:
    """Return the report of a month, of rows that who asks may see.

    The ledger's extract is brought up to date first. Raises StateError, InvalidInputError, OSError.
    """
    return _answer(context, query, with_lines=False).report


def month_answer(context: QueryContext, question: SpendQuestion) -> MonthAnswer:
    """Return the report of a month as of now, and the lines below it; corrections of closed months are booked first."""
    try:
        book_corrections(context)
    except InvalidInputError:
        # A sealed month does not need the bill that cannot be read; every command names it.
        if not is_sealed(context.store, question.month):
            raise
    with without_collector():
        return _answer(context, question.at(context.clock()), with_lines=True)


def book_corrections(context: QueryContext) -> None:
    """Book what changed bills change in closed months, as every command does that reports costs."""
    if seals(context.store):
        from router.app.close_month import book_and_log_corrections  # takes a while to import

        book_and_log_corrections(context.store, extract_folder(), bills_folder(), context.identity.name)


def _answer(context: QueryContext, query: ReportQuery, *, with_lines: bool) -> MonthAnswer:
    seen = seen_teams(context)
    if seen is not None:
        query = replace(query, teams=seen if query.teams is None else query.teams & seen)
    folders = extract_folder(), bills_folder(), quotes_folder()
    return answer_of_ledger(context.store, query, *folders, with_lines=with_lines)


def costed_months(context: QueryContext, teams: frozenset[str] | None) -> tuple[Month, ...]:
    """Return the months with costs of the teams (None: all) in the ledger, and those of bills; the newest first.

    What a bill has of which team is not looked at. Raises StateError, InvalidInputError, OSError.
    """
    from router.files.duckdb_session import connect, parquet_relation, rows_of
    from router.showback.report.rollup_tables import sql_of_teams

    found = {
        str(Month.of(datetime.fromisoformat(each.bill.end) - timedelta(microseconds=1)))
        for each in BillStore(bills_folder()).standing()
        if each.bill.end is not None
    }
    extract = LedgerExtract(extract_folder(), context.store.id)
    with extract.current(context.store.ledger) as manifest, connect() as connection:
        if manifest.parts:
            sums = parquet_relation([part.path(extract.folder, "sums") for part in manifest.parts])
            spent = f"source <> 'planned' AND {sql_of_teams(teams)}"
            rows = rows_of(connection.sql(f"SELECT DISTINCT month FROM {sums} WHERE {spent}"))
            own = {row["month"] for row in rows}
            found = found | own if teams is None else own or found
    months = sorted((Month.parse(name) for name in found), reverse=True)
    return tuple(month for month in months if FIRST_MONTH <= month <= LAST_MONTH)


def spend_version(context: QueryContext, now: datetime) -> Hashable:
    """Return what an answer about costs depends on beside the question: a few indexed queries and file names.

    It changes with the ledger, closings, budgets, bills, quotes, and every hour, for what still runs costs more.
    """
    return (
        *context.store.overview.books_version(),
        bills_version(bills_folder()),
        _folder_version(quotes_folder()),
        f"{now:%Y-%m-%dT%H}",
    )


def _folder_version(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
