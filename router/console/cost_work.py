"""Ask about costs in a child process, so that reading a large ledger takes no time from the thread that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pricing.problems import InvalidInputError
from router.access.identity import Identity
from router.console.work import Outcome, ProcessWorker, Report, open_worker_store, worker_settings
from router.queries.context import QueryContext
from router.state.errors import StateError

# A query: it gets a context and what it is asked about.
CostQuery = Callable[..., Any]


@dataclass(slots=True)
class CostWork:
    """Asks about costs: in the thread that wants to know, and after :meth:`start` in a child process.

    There one question is answered at a time; questions and answers are pickled.
    """

    context: QueryContext
    _worker: ProcessWorker | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Ask in a child process from now on."""
        self._worker = ProcessWorker(self.context.settings)

    def ask(self, query: CostQuery, *about: object) -> Any:
        """Return what the query returns, and raise what it raises; StateError where the child process died."""
        worker = self._worker
        if worker is None:
            return query(self.context, *about)
        request = {"query": query, "about": about, "now": self.context.clock(), "identity": self.context.identity}
        with self._lock:
            done = worker.run(_answer, request, lambda _: None, lambda: not self._ended.is_set())
        if done.outcome is not Outcome.DONE:
            raise StateError(done.message or "costs cannot be told now", "try again in a while")
        if "invalid" in done.result:
            raise done.result["invalid"]
        return done.result["value"]

    def close(self) -> None:
        """End the child process; a question under way fails."""
        self._ended.set()
        with self._lock:
            if self._worker is not None:
                self._worker.close()


def _answer(request: dict[str, Any], _: Report) -> dict[str, Any]:
    """Answer in the child process."""
    now: datetime = request["now"]
    identity: Identity = request["identity"]
    with open_worker_store(now) as store:
        context = QueryContext(worker_settings(), store, lambda: now, identity)
        try:
            return {"value": request["query"](context, *request["about"])}
        except InvalidInputError as error:
            return {"invalid": error}
        except OSError as error:
            raise StateError(f"what costs are made of cannot be read: {error.strerror or error}") from None
