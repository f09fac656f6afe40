"""Small writes of many threads, done together: whoever comes first writes for all that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Asked(Generic[_Item, _Result]):
    item: _Item
    done: bool = False
    result: _Result | None = None
    error: Exception | None = None


class Combining(Generic[_Item, _Result]):
    """``write`` writes some items in one transaction, all or none, and gives a result for each. Of the items that are
    about the same thing, as ``about`` says, one is written at a time. May be shared by threads."""

    def __init__(
        self, write: Callable[[Sequence[_Item]], Sequence[_Result]], about: Callable[[_Item], Hashable]
    ) -> None:
        self._write, self._about = write, about
        self._waiting: list[_Asked[_Item, _Result]] = []
        self._counting = threading.Lock()
        self._one = threading.Lock()

    def do(self, item: _Item) -> _Result:
        """The result of the item, once it is written. What ``write`` raises for this item alone; what is wrong with
        another one is told to the one who asked for that."""
        mine = _Asked[_Item, _Result](item)
        with self._counting:
            self._waiting.append(mine)
        while not mine.done:
            with self._one:
                if not mine.done:
                    self._write_for(self._taken())
        if mine.error is not None:
            raise mine.error
        return cast("_Result", mine.result)

    def _taken(self) -> list[_Asked[_Item, _Result]]:
        """The first that waits about each thing."""
        with self._counting:
            first: dict[Hashable, _Asked[_Item, _Result]] = {}
            for asked in self._waiting:
                first.setdefault(self._about(asked.item), asked)
            taken = list(first.values())
            self._waiting = [asked for asked in self._waiting if all(asked is not one for one in taken)]
        return taken

    def _write_for(self, some: Sequence[_Asked[_Item, _Result]]) -> None:
        try:
            for asked, result in zip(some, self._write([asked.item for asked in some]), strict=True):
                asked.result = result
        except Exception as error:
            if len(some) > 1:
                # Nothing is written: each by itself, so that the others do not suffer.
                for asked in some:
                    self._write_for([asked])
            else:
                some[0].error = error
        finally:
            for asked in some:
                asked.done = True
