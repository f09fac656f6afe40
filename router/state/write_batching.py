"""Write batching: one thread writes the small writes of all waiting threads in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

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
        """Return the first waiting item about each thing."""
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
