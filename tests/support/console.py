"""A console in this process: a client that asks it as somebody, over a state of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from router.access.identity import Identity, local_operator, parse_grants
from router.app.queries.context import QueryContext
from router.app.settings import AppSettings
from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.site import ConsoleSite
from router.console.task_kinds import FUNCTIONS
from router.console.work import ProcessWorker, Report, TaskRunner, WorkFunction, WorkResult, do_work
from router.deploy.deploy_settings import Deploy
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.store import StateStore

OPERATOR = local_operator("operator")
PAGE = {"Accept": "text/html"}
NIGHT = datetime(2026, 11, 21, 18, tzinfo=UTC)


def identity_with(*grants: str, name: str = "somebody") -> Identity:
    """Return an identity with grants such as ``viewer:speech``."""
    return Identity(name, parse_grants(grants))


@contextmanager
def query_context(
    folder: Path, identity: Identity = OPERATOR, clock: Callable[[], datetime] = lambda: NIGHT
) -> Iterator[QueryContext]:
    """Open a new state in the folder and return a context that asks it."""
    settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), folder, {})
    with StateStore.open(settings.state_url, now=clock()) as store:
        yield QueryContext(settings, store, clock, identity)


def console_client(context: QueryContext, identity: Callable[[], Identity | None] | None = None) -> TestClient:
    """Return a client of a console over the context; ``identity`` returns who asks, by default the context's."""
    site = ConsoleSite(context, lambda _: context.identity if identity is None else identity(), AnswerCache())
    return TestClient(make_console(site), base_url="http://127.0.0.1", raise_server_exceptions=True)


def ticking(step: timedelta) -> Callable[[], datetime]:
    """Return a clock that moves on by a step each time that it is read."""
    reads = itertools.count()
    return lambda: NIGHT + step * next(reads)


class ThreadWorker(ProcessWorker):
    """Does the work in the thread that asks, and cannot be stopped."""

    def run(
        self,
        function: WorkFunction,
        request: dict[str, Any],
        report: Report,
        goes_on: Callable[[], bool],
    ) -> WorkResult:
        return do_work(self._settings, function, request, report)


def task_runner(
    context: QueryContext,
    functions: Mapping[str, WorkFunction] = FUNCTIONS,
    clock: Callable[[], datetime] | None = None,
) -> TaskRunner:
    """Return what does the work of a context's state in this process."""
    return TaskRunner(context.store, ThreadWorker(context.settings), clock or context.clock, functions)


def run_tasks(context: QueryContext, functions: Mapping[str, WorkFunction] = FUNCTIONS) -> None:
    """Do all queued work of these kinds in this process."""
    runner = task_runner(context, functions)
    while runner.run_next():
        pass


def client_as(context: QueryContext, *grants: str) -> TestClient:
    """Return a client of somebody with these grants; without any, of the operator."""
    who = identity_with(*grants) if grants else OPERATOR
    return console_client(context, lambda: who)


def work(context: QueryContext, at: datetime = NIGHT) -> None:
    """Do the next queued task."""
    assert task_runner(context, clock=lambda: at).run_next()
