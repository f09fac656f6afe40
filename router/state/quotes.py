"""Quotes with the jobs that they are for, so that any server can show and accept them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from datetime import datetime

from sqlalchemy import select, update

from router.state.canonical_form import storable_text
from router.state.database import Database
from router.state.rows import insert_or_update, record_values
from router.state.tables import QUOTES


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


class StateQuotes:
    """The quotes of a database. A quote never changes; only its acceptance is added."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, row: QuoteRow) -> None:
        """Store a quote; repeating it is harmless, and leaves an acceptance as it is."""
        values = record_values(replace(row, asked_by=storable_text(row.asked_by)))
        with self._database.write() as connection:
            insert_or_update(connection, QUOTES, [values])

    def get(self, name: str) -> QuoteRow | None:
        """Return the quote of that id."""
        query = select(*_COLUMNS).where(QUOTES.c.id == name)
        with self._database.read() as connection:
            found = connection.execute(query).one_or_none()
            return None if found is None else QuoteRow(*found)

    def ids(self, prefix: str) -> tuple[str, ...]:
        """Return the ids that begin so, in order."""
        query = select(QUOTES.c.id).where(QUOTES.c.id.startswith(prefix, autoescape=True)).order_by(QUOTES.c.id)
        with self._database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def find(
        self,
        teams: Collection[str] | None = None,
        job: str | None = None,
        before: datetime | None = None,
        count: int | None = None,
    ) -> tuple[QuoteRow, ...]:
        """Return quotes, the latest first: of these teams (None is all), of that job, asked for before a moment."""
        query = select(*_COLUMNS).order_by(QUOTES.c.asked_at.desc(), QUOTES.c.id.desc())
        if teams is not None:
            query = query.where(QUOTES.c.team.in_(sorted(teams)))
        if job is not None:
            query = query.where(QUOTES.c.job == job)
        if before is not None:
            query = query.where(QUOTES.c.asked_at < before)
        with self._database.read() as connection:
            return tuple(QuoteRow(*row) for row in connection.execute(query if count is None else query.limit(count)))

    def accept(self, name: str, acceptance: str, *, replaces: bool = False) -> bool:
        """Add an acceptance to a quote; return whether that was done.

        It is not where there is no such quote, or where it was accepted before, unless it ``replaces`` that.
        """
        change = update(QUOTES).where(QUOTES.c.id == name).values(acceptance=acceptance)
        if not replaces:
            change = change.where(QUOTES.c.acceptance.is_(None))
        with self._database.write() as connection:
            return connection.execute(change).rowcount > 0


_COLUMNS = tuple(QUOTES.c[field.name] for field in fields(QuoteRow))
