"""Provision and release gangs in parallel threads under the apply lock, while the caller keeps observing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager

from router.controller.context import MOST_THREADS, ControllerContext
from router.controller.history.lifecycle import NotReleasedError
from router.state.errors import LeaseHeldError, StateError
from router.state.lease import Lease
from router.state.lock_owner import LockOwner

APPLY_LOCK = "apply"
_POLL_S = 0.25
# The pause in seconds before a failed action is tried again.
PAUSE_S = 10.0


@contextmanager
def apply_lock(
    site: ControllerContext, *, within_s: float = 0.0, waiting: Callable[[LeaseHeldError], None] | None = None
) -> Iterator[Lease]:
    """Hold the lock that provisioning and releasing machines requires.

    HeldError where it cannot be obtained within ``within_s`` seconds, or the site is stopped meanwhile. ``waiting`` is
    told once who holds it.
    """
    ends = time.monotonic() + within_s
    with ExitStack() as stack:
        while isinstance(lease := _try_lease(site, stack), LeaseHeldError):
            if time.monotonic() >= ends or site.stop.wait(_POLL_S):
                raise lease
            if waiting is not None:
                waiting(lease)
                waiting = None
        yield lease


def _try_lease(site: ControllerContext, stack: ExitStack) -> Lease | LeaseHeldError:
    try:
        # A lease expires in real time, whatever clock the clouds follow.
        return stack.enter_context(site.store.lease(APPLY_LOCK, LockOwner.of_this_process(), site.wall_clock))
    except LeaseHeldError as error:
        return error


class WorkerPool:
    """Runs actions by key, one at a time for each, in threads.

    The lock is held from :meth:`holds` until no action needs it. One thread begins actions and observes them.
    """

    def __init__(self, site: ControllerContext, lock: Callable[[], AbstractContextManager[object]]) -> None:
        self._site, self._lock = site, lock
        self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="gang")
        self._running: dict[str, Future[None]] = {}
        self._not_before: dict[str, float] = {}

    def holds(self) -> bool:
        """Return whether the lock is held, after trying to obtain it."""
        return self._site.workers.try_hold(self._lock)

    def is_busy(self, key: str) -> bool:
        """Return whether an action of that key is running, or failed a moment ago."""
        return key in self._running or self._not_before.get(key, 0.0) > time.monotonic()

    @property
    def idle(self) -> bool:
        return not self._running

    def begin(self, key: str, action: Callable[[], object]) -> None:
        """Run the action in a thread of its own.

        What cannot be released or recorded is reported, and left for later.
        """
        assert self._site.workers.holds_lock
        self._running[key] = self._site.workers.submit(self._pool, self._run, key, action)

    def reap(self) -> None:
        """Forget finished actions, raise their unexpected errors, and release the lock when idle."""
        for key in [key for key, future in self._running.items() if future.done()]:
            self._running.pop(key).result()
        now = time.monotonic()
        self._not_before = {key: at for key, at in list(self._not_before.items()) if at > now}
        self.rest()

    def rest(self) -> None:
        """Release the lock where no action needs it, so that others have a turn."""
        self._site.workers.rest()

    def finish(self) -> None:
        """Wait for all actions. To be called at the end, whatever happened."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._site.workers.close()

    def _run(self, key: str, action: Callable[[], object]) -> None:
        try:
            action()
        except (NotReleasedError, StateError, OSError) as error:
            self._not_before[key] = time.monotonic() + PAUSE_S
            self._site.tell(key, str(error))
