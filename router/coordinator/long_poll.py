"""Requests that are held until something happens to their attempt. No thread waits: all are in one event loop."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from router.coordinator.handlers import Answer
from router.coordinator.ordering import NOTHING

# So often it is looked for what other processes changed.
LOOK_SECONDS = 0.5
# Each held request is an open file: the rest of what the process may open is for others.
SHARE_HELD = 0.5
# One that cannot be held asks again after so long.
RETRY_SECONDS = 2.0


class Waiting:
    """``look`` says, from a thread, which attempts others changed since it was asked before. Only asked while somebody
    waits. At most ``most`` are held at once; by default half of the files that the process may open."""

    def __init__(
        self, look: Callable[[], Collection[str]], *, every: float = LOOK_SECONDS, most: int | None = None
    ) -> None:
        self._look, self._every, self._most = look, every, most
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._held = 0
        self._closed = False
        # Both belong to the loop that holds the requests.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None

    async def answer(
        self, attempt: str, seconds: float, ask: Callable[[], Awaitable[Answer]], peek: Callable[[], Answer | None]
    ) -> Answer:
        """What ``ask`` answers, once that is not that there is nothing to do, else after so many seconds. Where no more
        can be held, it is at once, with ``retry_seconds``. Later looks are by ``peek``, which waits for nothing, and
        says None where ``ask`` has to be asked."""
        if seconds <= 0:
            return await ask()
        limit = asyncio.get_running_loop().time() + seconds
        # Before the first look: what happens after it is not missed.
        with self._place(attempt) as bell:
            said = await ask()
            while True:
                if said != (200, NOTHING) or self._closed:
                    return said
                if bell is None:
                    return 200, {**NOTHING, "retry_seconds": RETRY_SECONDS}
                try:
                    async with asyncio.timeout_at(limit):
                        await bell.wait()
                except TimeoutError:
                    return said
                bell.clear()
                said = peek() or await ask()

    def ring(self, attempt: str) -> None:
        """Something happened to the attempt. From any thread, at any time."""
        self._call(self._ring, attempt)

    def close(self) -> None:
        """Those that wait go, and nobody is held any more. From any thread, at any time."""
        self._call(self._close)

    @contextmanager
    def _place(self, attempt: str) -> Iterator[asyncio.Event | None]:
        """An event that is set whenever something happens to the attempt; None where no more can be held."""
        if self._most is None:
            self._most = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_HELD)
        if self._closed or self._held >= self._most:
            yield None
            return
        self._loop = asyncio.get_running_loop()
        bell = asyncio.Event()
        self._bells.setdefault(attempt, set()).add(bell)
        self._held += 1
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._keep_looking())
        try:
            yield bell
        finally:
            self._held -= 1
            self._bells[attempt].discard(bell)
            if not self._bells[attempt]:
                del self._bells[attempt]

    def _call(self, what: Callable[..., None], *given: str) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and with it all who waited
                self._loop.call_soon_threadsafe(what, *given)

    def _ring(self, attempt: str) -> None:
        for bell in self._bells.get(attempt, ()):
            bell.set()

    def _close(self) -> None:
        self._closed = True
        for attempt in self._bells:
            self._ring(attempt)

    async def _keep_looking(self) -> None:
        thread = CapacityLimiter(1)
        while self._bells and not self._closed:
            await asyncio.sleep(self._every)
            for attempt in await run_sync(self._look, limiter=thread):
                self._ring(attempt)
