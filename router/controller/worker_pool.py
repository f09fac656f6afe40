"""Gangs made and released side by side, under the lock of whoever applies, while the caller goes on looking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from router.controller.context import Site
from router.controller.errors import NotReleasedError
from router.state.errors import HeldError, StateError
from router.state.lease import Lease
from router.state.lock_owner import Holder

LOCK = "apply"
_POLL_S = 0.25
# Before what failed here is tried again.
PAUSE_S = 10.0


@contextmanager
def one_at_a_time(
    site: Site, *, within_s: float = 0.0, waiting: Callable[[HeldError], None] | None = None
) -> Iterator[Lease]:
    """Whoever makes or releases machines holds this. HeldError where it cannot be had within so many seconds, or the
    site is stopped meanwhile. ``waiting`` is told once who has it."""
    ends = time.monotonic() + within_s
    with ExitStack() as stack:
        while isinstance(lease := _lease(site, stack), HeldError):
            if time.monotonic() >= ends or site.stop.wait(_POLL_S):
                raise lease
            if waiting is not None:
                waiting(lease)
                waiting = None
        yield lease


def _lease(site: Site, stack: ExitStack) -> Lease | HeldError:
    try:
        # A lease runs out in real time, whatever clock the clouds go by.
        return stack.enter_context(site.store.lease(LOCK, Holder.of_this_process(), site.wall_clock))
    except HeldError as error:
        return error


@dataclass(slots=True)
class Work:
    """Actions by key, one at a time for each; the lock is held from :meth:`holds` until nothing is left to do. One
    thread begins and looks."""

    site: Site
    lock: Callable[[], AbstractContextManager[object]]
    _pool: ThreadPoolExecutor = field(init=False)
    _held: ExitStack | None = None
    _running: dict[str, Future[None]] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.site.deploy.parallel, thread_name_prefix="gang")

    def holds(self) -> bool:
        """Whether the lock is ours, or could be had just now."""
        if self._held is None:
            stack = ExitStack()
            try:
                stack.enter_context(self.lock())
            except HeldError:
                return False
            self._held = stack
        return True

    def is_busy(self, key: str) -> bool:
        """Whether something of that key is being done, or failed a moment ago."""
        return key in self._running or self._not_before.get(key, 0.0) > time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether nothing is being done."""
        return not self._running

    def begin(self, key: str, action: Callable[[], None]) -> None:
        """Does it in a thread of its own. What cannot be released, or written down, is said, and left for later."""
        assert self._held is not None
        self._running[key] = self._pool.submit(self._do, key, action)

    def reap(self) -> None:
        """Forgets what is done; raises what went wrong in a way that nobody foresaw. Gives the lock back when idle."""
        for key in [key for key, future in self._running.items() if future.done()]:
            self._running.pop(key).result()
        now = time.monotonic()
        self._not_before = {key: at for key, at in list(self._not_before.items()) if at > now}
        self.rest()

    def rest(self) -> None:
        """Gives the lock back where nothing is being done: others have a turn."""
        if not self._running and self._held is not None:
            held, self._held = self._held, None
            held.close()

    def finish(self) -> None:
        """Waits for everything. To be called at the end, however that comes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._held is not None:
            held, self._held = self._held, None
            held.close()

    def _do(self, key: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (NotReleasedError, StateError, OSError) as error:
            self._not_before[key] = time.monotonic() + PAUSE_S
            self.site.tell(key, str(error))
