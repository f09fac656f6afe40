"""Share what was read from the state a moment ago: one thread reads it once for all who ask for the same.

A value is fresh for a second. After that the next reader has it read again, and gets the older one meanwhile where that
is young enough. What is written through this server is forgotten at once, so that whoever wrote sees it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from anyio.to_thread import run_sync

T = TypeVar("T")
# What a server that many people read sets.
FRESH_SECONDS = 1.0
STALE_SECONDS = 1.5
MOST = 512


@dataclass(slots=True)
class RecentAnswers:
    """The values by key, which has all that a value depends on but the state and the moment.

    Without ``fresh_seconds`` only those share a value who ask while it is read. It belongs to one event loop. A reading
    that began before :meth:`forget` is given to nobody who asks after it.
    """

    clock: Callable[[], float] = time.monotonic
    fresh_seconds: float = 0.0
    stale_seconds: float = 0.0
    _found: OrderedDict[Hashable, tuple[float, object]] = field(default_factory=OrderedDict)
    _reading: dict[Hashable, asyncio.Task[object]] = field(default_factory=dict)
    _generation: int = 0

    def share(self) -> None:
        """Let values serve for a moment from now on."""
        self.fresh_seconds, self.stale_seconds = FRESH_SECONDS, STALE_SECONDS

    async def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the value; ``read`` runs in a thread, and what it raises is raised for all who wait."""
        now, found = self.clock(), self._found.get(key)
        age = float("inf") if found is None else now - found[0]
        if found is not None and age < self.fresh_seconds:
            return cast("T", found[1])
        reading = self._reading.get(key)
        if reading is None or reading.get_loop() is not asyncio.get_running_loop():
            reading = self._reading[key] = asyncio.ensure_future(self._read(key, read, now, self._generation))
            reading.add_done_callback(lambda done: self._ended(key, done))
        if found is not None and age < self.stale_seconds:
            return cast("T", found[1])
        return cast("T", await asyncio.shield(reading))

    def forget(self) -> None:
        """Give nobody what was read until now."""
        self._generation += 1
        self._found.clear()
        self._reading.clear()

    async def _read(self, key: Hashable, read: Callable[[], T], at: float, generation: int) -> object:
        value = await run_sync(read)
        if generation == self._generation:
            self._found.pop(key, None)
            self._found[key] = (at, value)
            while len(self._found) > MOST:
                self._found.popitem(last=False)
        return value

    def _ended(self, key: Hashable, done: asyncio.Task[object]) -> None:
        if self._reading.get(key) is done:
            del self._reading[key]
        if not done.cancelled():
            done.exception()  # Whoever waited was told; where nobody did, the next one asks again.
