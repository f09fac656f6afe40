"""The context that provisioning and releasing machines needs, and the workers and the lock that both share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from providers.fleet import Fleet
from router.controller.history.lifecycle import NotReleasedError
from router.controller.workspace.bootstrap import CoordinatorEndpoint
from router.deploy.deploy_settings import Deploy
from router.state.errors import LeaseHeldError, StateError
from router.state.lease import Lease
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from terraform.runner import Runner
from terraform.spec import Host
from terraform.workdir import PluginSources

LockFactory = Callable[[], AbstractContextManager[object]]

# Threads of a pool of workers. Those without a slot wait for one, or for their data.
MOST_THREADS = 256
_POLL_S = 0.25


class Workers:
    """The workers of a process, of which ``slots`` work at the same time, under one lock.

    A worker that waits for something long and needs neither, such as a copy of data, gives both up meanwhile. The lock
    is released once no other worker needs it, and taken again before the first of them goes on.
    """

    def __init__(self, slots: int) -> None:
        self._slots = threading.Semaphore(slots)
        self._mutex = threading.Lock()
        self._thread = threading.local()
        self._stack: ExitStack | None = None
        self._again: LockFactory | None = None
        # Workers that are submitted, not done and not waiting.
        self._needing = 0

    @property
    def holds_lock(self) -> bool:
        return self._stack is not None

    @contextmanager
    def held(self, lock: AbstractContextManager[object], again: LockFactory) -> Iterator[None]:
        """Hold the lock while the block runs, but for the time in which all workers wait; ``again`` makes it anew."""
        self.rest()
        with ExitStack() as stack:
            stack.enter_context(lock)
            with self._mutex:
                self._again, self._stack = again, stack.pop_all()
        try:
            yield
        finally:
            self.close()

    def try_hold(self, again: LockFactory) -> bool:
        """Return whether the lock is held, after trying to take it."""
        with self._mutex:
            self._again = again
            return self._take() is None

    def rest(self) -> None:
        """Release the lock where no worker needs it."""
        with self._mutex:
            self._release_unneeded()

    def close(self) -> None:
        """Release the lock. To be called when no worker is left."""
        with self._mutex:
            self._needing = 0
            self._release_unneeded()

    def submit(self, pool: Executor, action: Callable[..., None], *arguments: Any) -> Future[None]:
        """Run the action as a worker in a thread of the pool, once a slot is free. The lock is held already."""
        with self._mutex:
            self._needing += 1
        return pool.submit(self._run, action, *arguments)

    @contextmanager
    def waiting(self, stop: threading.Event) -> Iterator[None]:
        """Give up slot and lock while the block runs; elsewhere than in a worker nothing is given up.

        LeaseHeldError at the end where ``stop`` is set and another process has the lock.
        """
        if not getattr(self._thread, "works", False):
            yield
            return
        with self._mutex:
            self._needing -= 1
            self._release_unneeded()
        self._slots.release()
        try:
            yield
        finally:
            self._slots.acquire()
            self._go_on(stop)

    def _run(self, action: Callable[..., None], *arguments: Any) -> None:
        with self._slots:
            self._thread.works = True
            try:
                action(*arguments)
            finally:
                self._thread.works = False
                with self._mutex:
                    self._needing -= 1

    def _go_on(self, stop: threading.Event) -> None:
        while True:
            stopped = stop.is_set()
            with self._mutex:
                held = self._take()
                if held is None or stopped:
                    self._needing += 1
            if held is None:
                return
            if stopped:
                raise held
            stop.wait(_POLL_S)

    def _take(self) -> LeaseHeldError | None:
        """Take the lock where this process does not have it; return who has it instead."""
        if self._stack is None:
            assert self._again is not None
            stack = ExitStack()
            try:
                stack.enter_context(self._again())
            except LeaseHeldError as error:
                return error
            self._stack = stack
        return None

    def _release_unneeded(self) -> None:
        if self._needing <= 0 and self._stack is not None:
            stack, self._stack = self._stack, None
            stack.close()


Reporter = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Everything that provisioning and releasing machines needs.

    ``runs`` holds a run directory for each attempt. ``fleet`` opens a cloud's machines by tag, None where a cloud has
    no tags; it may raise a ProviderError. ``pool`` is (region, instance type) -> own hosts. ``environment`` is where
    secret references are looked up. ``tell`` reports to a person what happens to a job. ``clock`` may run fast, as in a
    sandbox; ``wall_clock`` never does. Setting ``stop`` asks everything to wind up. ``choosing`` is held while own
    hosts are assigned to an attempt, ``copying`` while data are copied. ``workers`` make and release gangs.
    ``sold_zones``: the zones that sell machine types as the cloud said, by cloud, region and types, and when it did.
    """

    store: StateStore
    runner: Runner
    runs: Path
    deploy: Deploy
    home: CoordinatorEndpoint
    clock: Callable[[], datetime]
    wall_clock: Callable[[], datetime]
    fleet: Callable[[str], Fleet | None]
    tell: Reporter
    plugins: PluginSources = field(default_factory=PluginSources)
    pool: Mapping[tuple[str, str], tuple[Host, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    stop: threading.Event = field(default_factory=threading.Event)
    choosing: threading.Lock = field(default_factory=threading.Lock)
    copying: threading.Lock = field(default_factory=threading.Lock)
    sold_zones: dict[tuple[str, ...], tuple[tuple[str, ...] | None, datetime]] = field(default_factory=dict)
    workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", Workers(self.deploy.parallel))

    def directory(self, attempt_directory: str) -> Path:
        return self.runs / attempt_directory


APPLY_LOCK = "apply"
# The pause in seconds before a failed action is tried again.
PAUSE_S = 10.0


@contextmanager
def apply_lock(
    site: ControllerContext, *, within_s: float = 0.0, waiting: Callable[[LeaseHeldError], None] | None = None
) -> Iterator[Lease]:
    """Hold the lock that provisioning and releasing machines requires, as :func:`wait_for_lease` does."""
    with ExitStack() as stack:
        yield wait_for_lease(site, stack, APPLY_LOCK, within_s, waiting)


def wait_for_lease(
    site: ControllerContext,
    stack: ExitStack,
    name: str,
    within_s: float,
    waiting: Callable[[LeaseHeldError], None] | None = None,
    pause_s: float = _POLL_S,
) -> Lease:
    """Return a lease of the state database, held until the ``stack`` is left. ``waiting`` is told once who holds it.

    LeaseHeldError where it cannot be obtained within ``within_s`` seconds, or the site is stopped meanwhile.
    """
    ends = time.monotonic() + within_s
    while True:
        try:
            # A lease expires in real time, whatever clock the clouds follow.
            return stack.enter_context(site.store.lease(name, LockOwner.of_this_process(), site.wall_clock))
        except LeaseHeldError as error:
            if time.monotonic() >= ends or site.stop.wait(pause_s):
                raise
            if waiting is not None:
                waiting(error)
                waiting = None


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
