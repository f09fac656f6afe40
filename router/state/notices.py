"""What was announced to machines, as it was heard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select

from router.state.attempts import change_within
from router.state.database import Database
from router.state.errors import MovedError
from router.state.records import Attempt, NoticeRecord
from router.state.rows import put, records, values
from router.state.tables import NOTICES


class Notices:
    """The notices of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, notice: NoticeRecord) -> None:
        """Keeps one; where its attempt and rank have one of its id, that stays as it is."""
        with self._database.write() as connection:
            put(connection, NOTICES, [values(notice)])

    def add_with(self, notice: NoticeRecord, change: Callable[[Attempt], Attempt | None]) -> Attempt:
        """Keeps one and changes its attempt, both or neither, again until nobody was in between; the attempt as it is
        then. ``change`` is also asked where the notice was there before."""
        while True:
            try:
                with self._database.write() as connection:
                    put(connection, NOTICES, [values(notice)])
                    return change_within(connection, notice.attempt, change)
            except MovedError:
                continue

    def find(self, attempt_id: str | None, since: datetime | None) -> tuple[NoticeRecord, ...]:
        """Those of an attempt (None: of all), heard at ``since`` or later, in the order in which they were heard."""
        query = select(NOTICES).order_by(*(NOTICES.c[key] for key in ("heard_at", "attempt", "rank", "id")))
        if attempt_id is not None:
            query = query.where(NOTICES.c.attempt == attempt_id)
        if since is not None:
            query = query.where(NOTICES.c.heard_at >= since)
        with self._database.read() as connection:
            return tuple(records(connection, NOTICES, query, NoticeRecord))
