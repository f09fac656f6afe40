"""Run the tasks of a server in two lanes: plans, which may take minutes, and all others, which wait for no plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

from router.app.settings import AppSettings
from router.console.work import Lane, ProcessWorker, TaskRunner
from router.state.store import StateStore


class TaskLanes:
    """A runner for each lane, each with a child process of its own, which exists once there was a task for it."""

    def __init__(self, store: StateStore, settings: AppSettings, clock: Callable[[], datetime]) -> None:
        self._runners = [TaskRunner(store, ProcessWorker(settings), clock, lane) for lane in Lane]

    def drain(self) -> None:
        """Take no more tasks; those under way go back to the queue within a second, for another server."""
        for runner in self._runners:
            runner.drain()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take tasks while the block runs."""
        with ExitStack() as stack:
            for runner in self._runners:
                stack.enter_context(runner.running())
            stack.callback(self.drain)
            yield
