"""Writes that concern several parts of a state in one transaction; those of many threads go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from router.state.attempts import change_attempts_in_transaction, set_nodes_in_transaction
from router.state.database import Database
from router.state.errors import ConcurrentChangeError
from router.state.journal import append_in_transaction, new_journal_entry
from router.state.notices import add_notices_in_transaction
from router.state.records import Attempt, JournalEntry, NoticeRecord
from router.state.tables import JOURNAL
from router.state.write_batching import WriteBatcher

_Change = Callable[[Attempt], Attempt | None]
# A rank, the changes of its machine, and the entry about its attempt.
_NodeNote = tuple[int, Mapping[str, Any], JournalEntry]


class JointWrites:
    """The writes of a database that are batched: hundreds of ranks call in one second when a zone goes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._notices = WriteBatcher[tuple[NoticeRecord, _Change], Attempt](self._add_all, lambda one: one[0].attempt)
        self._notes = WriteBatcher[_NodeNote, None](self._note_all, lambda one: (one[2].attempt, one[0]))

    def add_notice(self, notice: NoticeRecord, change: _Change) -> Attempt:
        """Store a notice and change its attempt, both or neither; return the attempt after that.

        It retries until no other writer interferes. ``change`` is also called where the notice existed before, and
        perhaps more than once.
        """
        return self._notices.do((notice, change))

    def note(
        self,
        attempt_id: str,
        rank: int,
        changes: Mapping[str, Any],
        what: str,
        at: datetime,
        details: Mapping[str, object],
    ) -> None:
        """Append to the journal and change fields of a machine: both or neither. Raises what either raises."""
        self._notes.do((rank, changes, new_journal_entry(attempt_id, what, at, details)))

    def _add_all(self, items: Sequence[tuple[NoticeRecord, _Change]]) -> list[Attempt]:
        changes = {notice.attempt: change for notice, change in items}
        while True:
            try:
                with self._database.write() as connection:
                    add_notices_in_transaction(connection, [notice for notice, _ in items])
                    after = change_attempts_in_transaction(connection, changes)
                return [after[notice.attempt] for notice, _ in items]
            except ConcurrentChangeError:
                continue

    def _note_all(self, notes: Sequence[_NodeNote]) -> list[None]:
        with self._database.write(JOURNAL.name) as connection:
            set_nodes_in_transaction(connection, {(entry.attempt, rank): changes for rank, changes, entry in notes})
            append_in_transaction(connection, [entry for _, _, entry in notes])
        return [None for _ in notes]
