"""Ask large queries in a child process, so that they take no time from the thread that answers."""

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
from router.console.work import NICENESS, Outcome, ProcessWorker, Report, worker_settings
from router.state.errors import StateError
from router.state.store import StateStore

# A query: a function of a module that gets a context and what it is asked about.
Query = Callable[..., Any]


@dataclass(slots=True)
class QueryWork:
    """Asks queries: in the thread that wants to know, and after :meth:`start` in a child process.

    There one question is answered at a time; questions and answers are pickled.
    """

    context: QueryContext
    niceness: int = NICENESS
    _worker: ProcessWorker | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Ask in a child process from now on."""
        self._worker = ProcessWorker(self.context.settings, self.niceness)

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

    def close(self) -> None:
        """End the child process; a question under way fails."""
        self._ended.set()
        with self._lock:
            if self._worker is not None:
                self._worker.close()


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
