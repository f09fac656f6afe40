"""The notices to machines, as the coordinator received them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import select

from router.state.attempts import change_attempts_in_transaction
from router.state.database import Database
from router.state.errors import ConcurrentChangeError
from router.state.records import Attempt, NoticeRecord
from router.state.rows import insert_or_update, read_records, record_values
from router.state.tables import NOTICES
from router.state.write_batching import WriteBatcher

_Change = Callable[[Attempt], Attempt | None]


class NoticeRecords:
    """The notices of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Hundreds of notices come in one second when a zone goes.
        self._batcher = WriteBatcher[tuple[NoticeRecord, _Change], Attempt](self._add_all, lambda one: one[0].attempt)

    def add(self, notice: NoticeRecord) -> None:
        """Store a notice; one with the same attempt, rank and id that exists is left unchanged."""
        with self._database.write() as connection:
            insert_or_update(connection, NOTICES, [record_values(notice)])

    def add_with(self, notice: NoticeRecord, change: _Change) -> Attempt:
        """Store a notice and change its attempt, both or neither; return the attempt after that.

        It retries until no other writer interferes. ``change`` is also called where the notice existed before, and
        perhaps more than once.
        """
        return self._batcher.do((notice, change))

    def _add_all(self, items: Sequence[tuple[NoticeRecord, _Change]]) -> list[Attempt]:
        changes = {notice.attempt: change for notice, change in items}
        while True:
            try:
                with self._database.write() as connection:
                    insert_or_update(connection, NOTICES, [record_values(notice) for notice, _ in items])
                    after = change_attempts_in_transaction(connection, changes)
                return [after[notice.attempt] for notice, _ in items]
            except ConcurrentChangeError:
                continue

    def find(self, attempt_id: str | None, since: datetime | None) -> tuple[NoticeRecord, ...]:
        """Return the notices of an attempt (None: of all), heard at ``since`` or later, in that order."""
        query = select(NOTICES).order_by(*(NOTICES.c[key] for key in ("heard_at", "attempt", "rank", "id")))
        if attempt_id is not None:
            query = query.where(NOTICES.c.attempt == attempt_id)
        if since is not None:
            query = query.where(NOTICES.c.heard_at >= since)
        with self._database.read() as connection:
            return tuple(read_records(connection, NOTICES, query, NoticeRecord))
