"""The journal: what was begun or done, in one order; pools that were short; notices to machines."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, Text, delete, insert, select, type_coerce

from router.state.errors import UnreadableError
from router.state.records import ANY, JournalEntry, NoticeRecord, Shortage
from router.state.rows import StatePart, insert_or_update, read_last_seq, record_values
from router.state.tables import JOURNAL, NOTICES, SHORTAGES


class AttemptJournal(StatePart):
    """The journal of a database."""

    def note(self, attempt_id: str, what: str, at: datetime, **details: object) -> None:
        """Append an entry. TypeError or ValueError for details that are not JSON data."""
        self.note_all([(attempt_id, details)], what, at)

    def note_all(self, notes: Sequence[tuple[str, Mapping[str, object]]], what: str, at: datetime) -> None:
        """Append an entry for each of these attempts with its details, all or none. TypeError, ValueError."""
        if notes:
            with self._database.write(JOURNAL.name) as connection:
                entries = [new_journal_entry(attempt_id, what, at, details) for attempt_id, details in notes]
                append_in_transaction(connection, entries)

    def entries(
        self,
        attempt_id: str | None = None,
        *,
        what: Collection[str] | None = None,
        id_: str | None = None,
        skipped: list[UnreadableError] | None = None,
    ) -> tuple[JournalEntry, ...]:
        """Return the entries about an attempt, of these kinds, whose details have that ``id`` (None: any), in order.

        An unreadable entry is added to ``skipped``, if that is given; else UnreadableError.
        """
        query = select(JOURNAL).order_by(JOURNAL.c.seq)
        if attempt_id is not None:
            query = query.where(JOURNAL.c.attempt == attempt_id)
        if what is not None:
            query = query.where(JOURNAL.c.what.in_(what))
        if id_ is not None:
            # This spares reading most other entries; those that contain the text elsewhere are filtered out below.
            query = query.where(type_coerce(JOURNAL.c.details, Text).contains(json.dumps(id_), autoescape=True))
        found = self._records(JOURNAL, query, JournalEntry, skipped)
        return tuple(entry for entry in found if id_ is None or entry.details.get("id") == id_)


def new_journal_entry(attempt_id: str, what: str, at: datetime, details: Mapping[str, object]) -> JournalEntry:
    """Return an entry that has no number yet."""
    return JournalEntry(0, at, attempt_id, what, dict(details))


def append_in_transaction(connection: Connection, entries: Sequence[JournalEntry]) -> None:
    """Append entries, which get their numbers, as a part of a transaction that holds the journal's lock."""
    last = read_last_seq(connection, JOURNAL)
    numbered = [record_values(entry) | {"seq": last + number} for number, entry in enumerate(entries, start=1)]
    connection.execute(insert(JOURNAL), numbered)


# Shortages stay this long after their end, for those who count how often a pool fails.
SHORTAGE_RETENTION = timedelta(days=1)


class Shortages(StatePart):
    """The pools that are considered short."""

    def remember(self, *shortages: Shortage) -> None:
        """Add shortages, all or none, and delete those that ended long ago."""
        if not shortages:
            return
        past = min(shortage.at for shortage in shortages) - SHORTAGE_RETENTION
        with self._database.write() as connection:
            connection.execute(delete(SHORTAGES).where(SHORTAGES.c.until <= past))
            connection.execute(insert(SHORTAGES), [record_values(shortage) for shortage in shortages])

    def in_force(self, now: datetime) -> tuple[Shortage, ...]:
        """Return the shortages that last until after ``now``, in the order in which they were found."""
        query = select(SHORTAGES).where(SHORTAGES.c.until > now)
        return self._records(SHORTAGES, query.order_by(SHORTAGES.c.number), Shortage)

    def of_places(self, now: datetime) -> tuple[Shortage, ...]:
        """Return those in force that plans go by: of pools and regions, not of a whole cloud."""
        return tuple(shortage for shortage in self.in_force(now) if shortage.region != ANY)

    def found_since(self, moment: datetime) -> tuple[Shortage, ...]:
        """Return the shortages found at ``moment`` or later, past ones included as far as they are stored."""
        query = select(SHORTAGES).where(SHORTAGES.c.at >= moment)
        return self._records(SHORTAGES, query.order_by(SHORTAGES.c.number), Shortage)


class NoticeRecords(StatePart):
    """The notices of a database."""

    def add(self, notice: NoticeRecord) -> None:
        """Store a notice; one with the same attempt, rank and id that exists is left unchanged."""
        with self._database.write() as connection:
            add_notices_in_transaction(connection, [notice])

    def find(self, attempt_id: str | None = None, since: datetime | None = None) -> tuple[NoticeRecord, ...]:
        """Return the notices of an attempt (None: of all), heard at ``since`` or later, in that order."""
        query = select(NOTICES).order_by(*(NOTICES.c[key] for key in ("heard_at", "attempt", "rank", "id")))
        if attempt_id is not None:
            query = query.where(NOTICES.c.attempt == attempt_id)
        if since is not None:
            query = query.where(NOTICES.c.heard_at >= since)
        return self._records(NOTICES, query, NoticeRecord)


def add_notices_in_transaction(connection: Connection, notices: Sequence[NoticeRecord]) -> None:
    """Do :meth:`NoticeRecords.add` for many notices as a part of a transaction."""
    insert_or_update(connection, NOTICES, [record_values(notice) for notice in notices])
