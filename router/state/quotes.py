"""Quotes with the jobs that they are for, so that any server can show and accept them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Index, select, update

from router.state.columns import storable_text
from router.state.rows import StatePart, insert_or_update, record_values
from router.state.tables import record_table


@dataclass(frozen=True, slots=True)
class QuoteRow:
    """A quote as it was published, and the job it is for as it was written.

    ``acceptance`` is JSON, None where the quote was not accepted.
    """

    id: str
    job: str
    team: str
    asked_at: datetime
    asked_by: str
    text: str
    document: str
    acceptance: str | None = None


# Quotes with the jobs that they are for, as written; those of the command line lie in files, too.
QUOTES = record_table("quotes", QuoteRow, Index("quotes_by_asked_at", "asked_at"), key=("id",))


class StateQuotes(StatePart):
    """The quotes of a database. A quote never changes; only its acceptance is added."""

    def put(self, row: QuoteRow) -> None:
        """Store a quote; repeating it is harmless, and leaves an acceptance as it is."""
        values = record_values(replace(row, asked_by=storable_text(row.asked_by)))
        with self._database.write() as connection:
            insert_or_update(connection, QUOTES, [values])

    def get(self, name: str) -> QuoteRow | None:
        """Return the quote of that id."""
        return self._first_record(QUOTES, select(QUOTES).where(QUOTES.c.id == name), QuoteRow)

    def ids(self, prefix: str) -> tuple[str, ...]:
        """Return the ids that begin so, in order."""
        query = select(QUOTES.c.id).where(QUOTES.c.id.startswith(prefix, autoescape=True)).order_by(QUOTES.c.id)
        return self._first_column(query)

    def find(
        self,
        teams: Collection[str] | None = None,
        job: str | None = None,
        before: datetime | None = None,
        count: int | None = None,
    ) -> tuple[QuoteRow, ...]:
        """Return quotes, the latest first: of these teams (None is all), of that job, asked for before a moment."""
        query = select(QUOTES).order_by(QUOTES.c.asked_at.desc(), QUOTES.c.id.desc())
        if teams is not None:
            query = query.where(QUOTES.c.team.in_(sorted(teams)))
        if job is not None:
            query = query.where(QUOTES.c.job == job)
        if before is not None:
            query = query.where(QUOTES.c.asked_at < before)
        return self._records(QUOTES, query if count is None else query.limit(count), QuoteRow)

    def accept(self, name: str, acceptance: str, *, replaces: bool = False) -> bool:
        """Add an acceptance to a quote; return whether that was done.

        It is not where there is no such quote, or where it was accepted before, unless it ``replaces`` that.
        """
        change = update(QUOTES).where(QUOTES.c.id == name).values(acceptance=acceptance)
        if not replaces:
            change = change.where(QUOTES.c.acceptance.is_(None))
        return self._write(change) > 0
