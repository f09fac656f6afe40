"""The notices to machines, as the coordinator received them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from router.state.database import Database
from router.state.records import NoticeRecord
from router.state.rows import insert_or_update, read_records, record_values
from router.state.tables import NOTICES


class NoticeRecords:
    """The notices of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        with self._database.read() as connection:
            return tuple(read_records(connection, NOTICES, query, NoticeRecord))


def add_notices_in_transaction(connection: Connection, notices: Sequence[NoticeRecord]) -> None:
    """Do :meth:`NoticeRecords.add` for many notices as a part of a transaction."""
    insert_or_update(connection, NOTICES, [record_values(notice) for notice in notices])
