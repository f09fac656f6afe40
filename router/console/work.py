"""Run long work that was asked for at a server, one task at a time, in a child process with low priority.

The state holds the tasks, so any server may run what another one was asked for, and what a killed server ran is run
again once its lease is over. A kind of task is a function of a module; it gets the request and a function that reports
progress.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from pricing.problems import InvalidInputError
from router.app.settings import AppSettings
from router.state.errors import StateError
from router.state.plans import MadePlanEntry
from router.state.store import StateStore
from router.state.tasks import TaskRow, TaskState

Report = Callable[[str], None]

LOG = logging.getLogger("stepfare.console")
NICENESS = 10
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
PROGRESS_SECONDS = 0.5
PRUNE_SECONDS = 3600.0
# In the request of a task that another worker began: that one may have done everything but say so.
BEGUN_BEFORE = "begun before"
_STOP_SECONDS = 5.0
_STOPPING_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})


# The result of a task that failed may have this key: the field of the request that may change that.
FIELD = "field"


class WorkError(Exception):
    """A task cannot be done; the message is for who asked, and says what to do.

    ``field``: the field of the request that may change that, for the form; "" for none.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Outcome(StrEnum):
    """How the work on a task ended; one whose process was told to stop, or died, is left to be done again."""

    DONE = "done"
    FAILED = "failed"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The end of the work on a task, with its result or a message; ``made_plan`` is stored with its end."""

    outcome: Outcome
    result: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    made_plan: MadePlanEntry | None = None


# A function returns its result, or that with what is to be stored with the end of the task.
WorkFunction = Callable[[dict[str, Any], Report], dict[str, Any] | WorkResult]


class ProcessWorker:
    """Do the work in a child process, which ends with this one, whatever ends it."""

    def __init__(self, settings: AppSettings, niceness: int = NICENESS) -> None:
        self._settings = settings
        self._niceness = niceness
        self._child: tuple[SpawnProcess, Connection] | None = None

    def run(
        self, function: WorkFunction, request: dict[str, Any], report: Report, goes_on: Callable[[], bool]
    ) -> WorkResult:
        """Return how the work ended. What is told to stop, or dies, takes the child process with it."""
        try:
            connection = self._connection()
            connection.send((function, request))
            while True:
                if not goes_on():
                    self.close()
                    return WorkResult(Outcome.LEFT)
                if not connection.poll(PROGRESS_SECONDS / 2):
                    continue
                received = connection.recv()
                if isinstance(received, WorkResult):
                    return received
                report(received)
        except (EOFError, OSError):
            self.close()
            return WorkResult(Outcome.LEFT)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the child process."""
        if self._child is None:
            return
        (process, connection), self._child = self._child, None
        process.kill()
        process.join()
        process.close()
        connection.close()

    def _connection(self) -> Connection:
        if self._child is not None and self._child[0].is_alive():
            return self._child[1]
        self.close()
        # A fork would copy locks of the server's threads and connections of its database.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        about = (theirs, self._settings, self._niceness)
        process = context.Process(target=_serve_work, args=about, name="stepfare work", daemon=True)
        with _stop_signals_blocked():
            process.start()
        theirs.close()
        self._child = process, ours
        return ours


class _ChildState:
    """The settings that a worker process was started with."""

    settings: AppSettings | None = None


_CHILD = _ChildState()


def worker_settings() -> AppSettings:
    """Return the settings of the server for which this process works. RuntimeError in any other process."""
    if _CHILD.settings is None:
        raise RuntimeError("no task is run here")
    return _CHILD.settings


@contextmanager
def open_worker_store(now: datetime) -> Iterator[StateStore]:
    """Open the state of the server for which this process works."""
    with StateStore.open(worker_settings().state_url, now=now, makes=False) as store:
        yield store


def _serve_work(connection: Connection, settings: AppSettings, niceness: int) -> None:
    # Both are sent to all processes of a server at once, by terminals and by systemd; the server ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING_SIGNALS)
    os.nice(niceness)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            function, request = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(do_work(settings, function, request, connection.send))


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def do_work(settings: AppSettings, function: WorkFunction, request: dict[str, Any], report: Report) -> WorkResult:
    """Return how the work ended that a function does in this process, for the server of these settings."""
    _CHILD.settings = settings
    try:
        made = function(request, report)
        return made if isinstance(made, WorkResult) else WorkResult(Outcome.DONE, made)
    except WorkError as error:
        return WorkResult(Outcome.FAILED, {FIELD: error.field} if error.field else {}, str(error))
    except (InvalidInputError, StateError) as error:
        return WorkResult(Outcome.FAILED, message=str(error))
    except Exception as error:
        LOG.exception("a task failed unexpectedly")
        return WorkResult(Outcome.FAILED, message=f"failed unexpectedly ({type(error).__name__}); the log says more")


@contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Start a process in here without the signals to stop, which the server receives and answers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class TaskRunner:
    """Take tasks from the state, one at a time, and store how they end.

    ``functions`` do the work, by kind; tasks of other kinds are left to servers that know them. ``clock`` is the time
    of day. Its thread runs between :meth:`start` and :meth:`stop`; tests call :meth:`run_next`.
    """

    def __init__(
        self,
        store: StateStore,
        worker: ProcessWorker,
        clock: Callable[[], datetime],
        functions: Mapping[str, WorkFunction],
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._functions = functions
        self._draining = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._pruned_at = float("-inf")

    def start(self) -> None:
        """Begin to take tasks, in a thread."""
        self._thread = threading.Thread(target=self._work, name="tasks", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Take no more tasks; the one under way goes on until :meth:`stop`."""
        self._draining.set()

    def stop(self) -> None:
        """Stop; a task under way is taken up again, by any server, once its lease is over."""
        self.drain()
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        self._worker.close()

    @contextmanager
    def running(self) -> Iterator[TaskRunner]:
        """Take tasks while the block runs."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def run_next(self) -> bool:
        """Run the next task to its end, or until told to stop. False where there is none."""
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        task = self._store.tasks.take(name, self._functions, self._clock())
        if task is None:
            return False
        link = _TaskLink(self._store, task, self._clock, self._stopping)
        ended = self._worker.run(self._functions[task.kind], link.request, link.report, link.goes_on)
        link.end(ended)
        return True

    def _work(self) -> None:
        while not self._draining.is_set():
            try:
                self._prune()
                if self.run_next():
                    continue
            except StateError as error:
                LOG.warning("tasks: %s", error)
            self._draining.wait(POLL_SECONDS)

    def _prune(self) -> None:
        if time.monotonic() - self._pruned_at >= PRUNE_SECONDS:
            self._store.tasks.prune(self._clock())
            self._pruned_at = time.monotonic()


class _TaskLink:
    """A task under way, as its worker reports it to the state."""

    def __init__(
        self, store: StateStore, task: TaskRow, clock: Callable[[], datetime], stopping: threading.Event
    ) -> None:
        self._tasks = store.tasks
        self._task = task
        self._clock = clock
        self._stopping = stopping
        self._is_own = True
        self._written_at = time.monotonic()
        self._reported_at = float("-inf")
        self._pending = ""

    @property
    def request(self) -> dict[str, Any]:
        """Return the request of the task, with a mark where it was begun before."""
        request: dict[str, Any] = json.loads(self._task.request)
        begun = sum((event.what, event.text) == ("state", TaskState.RUNNING) for event in self._task.events)
        return {**request, BEGUN_BEFORE: True} if begun > 1 else request

    def report(self, text: str) -> None:
        """Write a message; of several in quick succession the last."""
        self._pending = text
        if time.monotonic() - self._reported_at >= PROGRESS_SECONDS:
            self._flush()

    def goes_on(self) -> bool:
        """Return whether to go on; write what waits, and that the worker lives."""
        if self._stopping.is_set():
            return False
        now = time.monotonic()
        if self._pending and now - self._reported_at >= PROGRESS_SECONDS:
            self._flush()
        elif now - self._written_at >= HEARTBEAT_SECONDS:
            # A state that is locked or away for a while costs no task; when it is back, it says whose the task is.
            with contextlib.suppress(StateError):
                self._is_own = self._tasks.heartbeat(self._task.id, self._task.worker, self._clock())
            self._written_at = now
        return self._is_own

    def end(self, ended: WorkResult) -> None:
        """Store how the work ended; nothing where it was left, or the task is another worker's by now."""
        task, at = self._task, self._clock()
        if ended.outcome is Outcome.LEFT:
            LOG.warning("task %s was left, and is taken up again once its lease is over", task.id)
            return
        if self._pending:
            self._flush()
        if ended.outcome is Outcome.DONE:
            self._tasks.finish(task.id, task.worker, ended.result, at, ended.made_plan)
        else:
            self._tasks.fail(task.id, task.worker, ended.message, at, ended.result)

    def _flush(self) -> None:
        with contextlib.suppress(StateError):
            self._is_own = self._tasks.progress(self._task.id, self._task.worker, self._pending, self._clock())
        self._pending = ""
        self._reported_at = self._written_at = time.monotonic()
