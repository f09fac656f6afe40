"""Ask large queries, and draw what is told of jobs, in a child process: the thread that answers has time for others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pricing.problems import InvalidInputError
from router.access.identity import Identity
from router.app.queries.context import QueryContext
from router.app.queries.jobs import find_attempt, find_job, report_jobs
from router.app.queries.plans import find_night_of
from router.app.queries.quotes import list_job_quotes
from router.console.work import NICENESS, Outcome, ProcessWorker, Report, worker_settings
from router.render import jobs_data
from router.render.jobs_page import JobsView, attempt_page, job_page, jobs_fragment, jobs_page
from router.render.pages import PageFrame
from router.render.planned_job_page import planned_job_url
from router.render.quote_list_page import QuoteListView, job_quotes_view
from router.state.errors import StateError
from router.state.store import StateStore

# A query: a function of a module that gets a context and what it is asked about.
Query = Callable[..., Any]


@dataclass(slots=True)
class QueryWork:
    """Asks queries: in the thread that wants to know, and within :meth:`in_child` in a child process.

    There one question is answered at a time; questions and answers are pickled.
    """

    context: QueryContext
    niceness: int = NICENESS
    _worker: ProcessWorker | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def in_child(self) -> Iterator[None]:
        """Ask in a child process while the block runs; a question under way at its end fails."""
        self._worker = worker = ProcessWorker(self.context.settings, self.niceness)
        try:
            yield
        finally:
            self._ended.set()
            with self._lock:
                worker.close()

    def ask(self, query: Query, *about: object) -> Any:
        """Return what the query returns for the operator of the server, as :meth:`ask_for`."""
        return self.ask_for(self.context, query, *about)

    def ask_for(self, context: QueryContext, query: Query, *about: object) -> Any:
        """Return what the query returns for who asks in a context of this state.

        InvalidInputError and StateError of the query; StateError where the child process died.
        """
        worker = self._worker
        if worker is None:
            return query(context, *about)
        request = {"query": query, "about": about, "now": context.clock(), "identity": context.identity}
        with self._lock:
            done = worker.run(_answer, request, lambda _: None, lambda: not self._ended.is_set())
        if done.outcome is not Outcome.DONE:
            raise StateError(done.message or "this cannot be told now", "try again in a while")
        if "invalid" in done.result:
            raise done.result["invalid"]
        return done.result["value"]


class _ChildStore:
    """The state as a child process keeps it open: what it read before is not converted again."""

    store: StateStore | None = None


_CHILD = _ChildStore()


@contextmanager
def _kept_store(now: datetime) -> Iterator[StateStore]:
    """Open the state once for all questions; anew after a question that the state did not answer."""
    if _CHILD.store is None:
        _CHILD.store = StateStore.open(worker_settings().state_url, now=now, makes=False)
    try:
        yield _CHILD.store
    except StateError:
        _CHILD.store.close()
        _CHILD.store = None
        raise


def _answer(request: dict[str, Any], _: Report) -> dict[str, Any]:
    now: datetime = request["now"]
    identity: Identity = request["identity"]
    with _kept_store(now) as store:
        context = QueryContext(worker_settings(), store, lambda: now, identity)
        try:
            return {"value": request["query"](context, *request["about"])}
        except InvalidInputError as error:
            return {"invalid": error}
        except OSError as error:
            raise StateError(f"a file of this server cannot be read: {error.strerror or error}") from None


def draw_jobs(context: QueryContext, frame: PageFrame | None, refreshing: bool, view: JobsView) -> str:
    """Return the page of the gangs that somebody looks at; without a frame the part of it that changes."""
    report = report_jobs(context)
    if frame is None:
        return jobs_fragment(report, refreshing=refreshing, view=view)
    return jobs_page(report, frame, refreshing=refreshing, view=view)


def draw_job(context: QueryContext, name: str, frame: PageFrame) -> str | None:
    """Return the page of a job; None where there is none that may be seen."""
    report = find_job(context, name)
    if report is None:
        return None
    tonight = find_night_of(context, name)
    is_new = tonight is not None and tonight != report.last.outlook.gang.attempt.plan
    quotes = view_job_quotes(context, name, report.last.outlook.gang.attempt.team)
    return job_page(report, frame, planned_job_url("latest", name) if is_new else "", quotes)


def view_job_quotes(context: QueryContext, job: str, team: str) -> QuoteListView | None:
    """Return what the page of a team's job shows of its quotes; None if there are none that the reader may see."""
    try:
        quotes = list_job_quotes(context, job, team)
    except InvalidInputError:
        # The message may name a quote of another team, and a job can be looked at without its quotes.
        return job_quotes_view(None, context.clock(), job)
    return job_quotes_view(quotes, context.clock(), job)


def draw_attempt(context: QueryContext, name: str, frame: PageFrame) -> str | None:
    """Return the page of an attempt; None where there is none that may be seen."""
    report = find_attempt(context, name)
    return None if report is None else attempt_page(report, context.clock(), frame)


def list_gangs(context: QueryContext, limit: int, before: str | None) -> dict[str, object] | None:
    """Return the document of ``limit`` gangs; None where there is no such attempt ``before``."""
    return jobs_data.jobs_document(report_jobs(context), limit, before)


def list_gangs_as_csv(context: QueryContext) -> str:
    """Return all gangs as CSV."""
    return jobs_data.gangs_as_csv(report_jobs(context))
