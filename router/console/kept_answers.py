"""Answers that take seconds to make: kept until what they depend on changes, and made again behind the readers.

A reader waits only for an answer that nobody asked for before, or not for long. Where there is an older one it is given
at once, and a newer one is being made. One thread makes all of them, one after another, so that the rest of the machine
serves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from anyio.to_thread import run_sync

from router.state.errors import StateError

VERSION_SECONDS = 1.0
# An answer older than this is not given any more once it has changed; those last asked for are made again before.
STALE_SECONDS = 900.0
REFRESH_SECONDS = 60.0
MOST_REFRESHED = 6
# How long an answer is given although it changed, at a server whose books change all the time: so many seconds, or so
# many times what it took to make.
REST_SECONDS = 10.0
REST_TIMES = 5.0
# The most answers kept, and the most that may wait to be made.
MOST_KEPT = 64
MOST_WAITING = 24


class ManyQuestionsError(StateError):
    """More different answers are being made than a server takes on."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer, the version of what it was made from, when, and how."""

    value: Any
    version: Hashable
    made_at: float
    make: Callable[[], Any]
    took: float = 0.0


@dataclass(slots=True)
class KeptAnswers:
    """The answers by question. ``version`` returns what all of them depend on, and may take a few queries.

    An answer that changed is made again after ``rest_seconds`` at the earliest, and after some times what it took.
    """

    version: Callable[[], Hashable]
    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[Hashable, KeptAnswer] = field(default_factory=OrderedDict)
    _making: dict[Hashable, Future[KeptAnswer]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _maker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "answers"))
    rest_seconds: float = 0.0
    _version: tuple[float, Hashable] | None = None
    _asking: asyncio.Task[Hashable] | None = None

    async def get(self, question: Hashable, make: Callable[[], Any]) -> KeptAnswer:
        """Return the answer, the last one where a newer is being made. Raises what ``make`` raises.

        StateError where too many others wait to be made.
        """
        version = await self._current_version()
        with self._lock:
            found = self._kept.get(question)
            if found is not None:
                self._kept.move_to_end(question)
                if found.version == version or self._rests(found):
                    return found
            is_given = found is not None and self.clock() - found.made_at <= STALE_SECONDS
            making = self._start(question, make, may_wait=not is_given)
        if found is not None and is_given:
            return found
        assert making is not None
        return await asyncio.shield(asyncio.wrap_future(making))

    def begin(self, question: Hashable, make: Callable[[], Any]) -> Future[KeptAnswer]:
        """Let an answer be made and return it on its way, without a reader. StateError where too many wait."""
        with self._lock:
            making = self._start(question, make, may_wait=True)
        assert making is not None
        return making

    def refresh(self) -> None:
        """Make the answers last asked for again where their version has changed. Raises what reading that raises."""
        version = self.version()
        with self._lock:
            last = list(self._kept.items())[-MOST_REFRESHED:]
            for question, kept in last:
                if kept.version != version:
                    self._start(question, kept.make, may_wait=False)

    def close(self) -> None:
        """Make nothing more."""
        self._maker.shutdown(wait=True, cancel_futures=True)

    def _start(self, question: Hashable, make: Callable[[], Any], *, may_wait: bool) -> Future[KeptAnswer] | None:
        """Return the answer on its way; None where too many are, and there is an older one to give."""
        if (making := self._making.get(question)) is not None:
            return making
        if len(self._making) >= MOST_WAITING:
            if not may_wait:
                return None
            raise ManyQuestionsError(f"{len(self._making)} other reports are being made; ask again in a minute")
        making = self._making[question] = self._maker.submit(self._make, question, make)
        making.add_done_callback(lambda _: self._made(question))
        return making

    def _make(self, question: Hashable, make: Callable[[], Any]) -> KeptAnswer:
        # The version is read first: what changes meanwhile makes the answer old, never wrong.
        version, began = self.version(), self.clock()
        value, ended = make(), self.clock()
        answer = KeptAnswer(value, version, ended, make, ended - began)
        with self._lock:
            self._kept[question] = answer  # keeps its place in the order of use
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return answer

    def _made(self, question: Hashable) -> None:
        with self._lock:
            self._making.pop(question, None)

    def _rests(self, kept: KeptAnswer) -> bool:
        return self.rest_seconds > 0 and self.clock() - kept.made_at < max(self.rest_seconds, REST_TIMES * kept.took)

    async def _current_version(self) -> Hashable:
        known, now = self._version, self.clock()
        if known is not None and now - known[0] < VERSION_SECONDS:
            return known[1]
        asking = self._asking
        if asking is None or asking.done() or asking.get_loop() is not asyncio.get_running_loop():
            asking = self._asking = asyncio.ensure_future(run_sync(self.version))
        version = await asyncio.shield(asking)
        self._version = (now, version)
        return version
