"""Writes that concern several parts of a state in one transaction; those of many threads go together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from router.state.attempts import change_attempts_in_transaction, set_nodes_in_transaction
from router.state.database import Database
from router.state.errors import ConcurrentChangeError
from router.state.journal import add_notices_in_transaction, append_in_transaction, new_journal_entry
from router.state.records import Attempt, JournalEntry, NoticeRecord
from router.state.rows import StatePart
from router.state.tables import JOURNAL

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class _PendingWrite(Generic[_Item, _Result]):
    item: _Item
    done: bool = False
    result: _Result | None = None
    error: Exception | None = None


class WriteBatcher(Generic[_Item, _Result]):
    """Writes items of many threads together. May be shared by threads.

    ``write`` writes several items in one transaction, all or none, and returns a result for each. Of the items about
    the same thing, as ``about`` says, one is written at a time.
    """

    def __init__(
        self, write: Callable[[Sequence[_Item]], Sequence[_Result]], about: Callable[[_Item], Hashable]
    ) -> None:
        self._write, self._about = write, about
        self._waiting: list[_PendingWrite[_Item, _Result]] = []
        self._waiting_lock = threading.Lock()
        self._write_lock = threading.Lock()

    def do(self, item: _Item) -> _Result:
        """Write the item and return its result. Raises what ``write`` raises for this item alone.

        An error of another item goes to the thread that submitted that one.
        """
        own_write = _PendingWrite[_Item, _Result](item)
        with self._waiting_lock:
            self._waiting.append(own_write)
        while not own_write.done:
            with self._write_lock:
                if not own_write.done:
                    self._write_for(self._take_batch())
        if own_write.error is not None:
            raise own_write.error
        return cast("_Result", own_write.result)

    def _take_batch(self) -> list[_PendingWrite[_Item, _Result]]:
        with self._waiting_lock:
            first: dict[Hashable, _PendingWrite[_Item, _Result]] = {}
            for pending in self._waiting:
                first.setdefault(self._about(pending.item), pending)
            batch = list(first.values())
            self._waiting = [pending for pending in self._waiting if all(pending is not one for one in batch)]
        return batch

    def _write_for(self, batch: Sequence[_PendingWrite[_Item, _Result]]) -> None:
        try:
            for pending, result in zip(batch, self._write([pending.item for pending in batch]), strict=True):
                pending.result = result
        except Exception as error:
            if len(batch) > 1:
                # Nothing is written, so each is written by itself, and a bad item affects no other.
                for pending in batch:
                    self._write_for([pending])
            else:
                batch[0].error = error
        finally:
            for pending in batch:
                pending.done = True


_Change = Callable[[Attempt], Attempt | None]
# A rank, the changes of its machine, and the entry about its attempt.
_NodeNote = tuple[int, Mapping[str, Any], JournalEntry]


class JointWrites(StatePart):
    """The writes of a database that are batched: hundreds of ranks call in one second when a zone goes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._notices = WriteBatcher[tuple[NoticeRecord, _Change], Attempt](
            self._add_all, lambda change: change[0].attempt
        )
        self._notes = WriteBatcher[_NodeNote, None](self._note_all, lambda note: (note[2].attempt, note[0]))

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
        """Append to the journal and change fields of a machine: both or neither.

        TypeError for details that are not JSON data; MissingError.
        """
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
