"""The context that provisioning and releasing machines needs, and the workers of a process that do both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from providers.fleet import Fleet
from router.controller.workspace.bootstrap import CoordinatorEndpoint
from router.deploy.deploy_settings import Deploy
from router.state.errors import LeaseHeldError
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
