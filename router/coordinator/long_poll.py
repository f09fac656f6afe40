"""Hold requests until something happens to their attempt. No thread waits: all are in one event loop."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from router.coordinator.handlers import AgentReply
from router.coordinator.saves import NO_ORDER

# Seconds between checks for changes by other processes.
LOOK_SECONDS = 0.5
# Each held request is an open file; the rest of what the process may open is for others.
SHARE_HELD = 0.5
# A request that cannot be held is repeated after this many seconds.
RETRY_SECONDS = 2.0


class LongPoll:
    """Holds requests of agents until their attempt changes.

    ``look`` returns, from a thread, which attempts other processes changed since its last call. It is called only while
    requests wait. At most ``max_held`` requests are held at once; by default half of the files that the process may
    open.
    """

    def __init__(
        self, look: Callable[[], Collection[str]], *, every: float = LOOK_SECONDS, max_held: int | None = None
    ) -> None:
        self._look, self._every, self._max_held = look, every, max_held
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._held = 0
        self._closed = False
        # Both belong to the event loop that holds the requests.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._check_task: asyncio.Task[None] | None = None

    async def answer(
        self,
        attempt: str,
        seconds: float,
        ask: Callable[[], Awaitable[AgentReply]],
        peek: Callable[[], AgentReply | None],
    ) -> AgentReply:
        """Return the answer of ``ask`` once there is something to do, or after that many seconds at the latest.

        Where no more requests can be held, the answer comes at once, with ``retry_seconds``. Later checks are made by
        ``peek``, which never blocks, and returns None where ``ask`` has to be called.
        """
        if seconds <= 0:
            return await ask()
        limit = asyncio.get_running_loop().time() + seconds
        # The place is taken before the first check, so that nothing after it is missed.
        with self._place(attempt) as bell:
            reply = await ask()
            while True:
                if reply != (200, NO_ORDER) or self._closed:
                    return reply
                if bell is None:
                    return 200, {**NO_ORDER, "retry_seconds": RETRY_SECONDS}
                try:
                    async with asyncio.timeout_at(limit):
                        await bell.wait()
                except TimeoutError:
                    return reply
                bell.clear()
                reply = peek() or await ask()

    def ring(self, attempt: str) -> None:
        """Wake the requests of the attempt. From any thread, at any time."""
        self._call_in_loop(self._ring, attempt)

    def close(self) -> None:
        """Answer all held requests and hold no more. From any thread, at any time."""
        self._call_in_loop(self._close)

    @contextmanager
    def _place(self, attempt: str) -> Iterator[asyncio.Event | None]:
        """Yield an event that is set whenever something happens to the attempt; None where no more can be held."""
        if self._max_held is None:
            self._max_held = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_HELD)
        if self._closed or self._held >= self._max_held:
            yield None
            return
        self._loop = asyncio.get_running_loop()
        bell = asyncio.Event()
        self._bells.setdefault(attempt, set()).add(bell)
        self._held += 1
        if self._check_task is None or self._check_task.done():
            self._check_task = self._loop.create_task(self._check_repeatedly())
        try:
            yield bell
        finally:
            self._held -= 1
            self._bells[attempt].discard(bell)
            if not self._bells[attempt]:
                del self._bells[attempt]

    def _call_in_loop(self, action: Callable[..., None], *arguments: str) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and all requests with it.
                self._loop.call_soon_threadsafe(action, *arguments)

    def _ring(self, attempt: str) -> None:
        for bell in self._bells.get(attempt, ()):
            bell.set()

    def _close(self) -> None:
        self._closed = True
        for attempt in self._bells:
            self._ring(attempt)

    async def _check_repeatedly(self) -> None:
        thread = CapacityLimiter(1)
        while self._bells and not self._closed:
            await asyncio.sleep(self._every)
            for attempt in await run_sync(self._look, limiter=thread):
                self._ring(attempt)
