"""Local HTTP services that stand in for a cloud: a WSGI app in a thread of the test, or in a process of its own."""

from __future__ import annotations

import importlib
import itertools
import json
import multiprocessing
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from wsgiref.types import WSGIApplication

from werkzeug.serving import WSGIRequestHandler, make_server

from router.agent.rendezvous import find_free_port

# Time limits of calls and of reads in tests that judge neither: no machine is so busy that it reaches them.
CALL_LIMIT_S = 3600.0
READ_LIMIT_S = 120.0


class QuietHandler(WSGIRequestHandler):
    """Keeps connections open, as real services do, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def send_header(self, keyword: str, value: str) -> None:
        """A date that the app gives takes the place of the server's own: a service's clock may be wrong."""
        if keyword.lower() == "date" and hasattr(self, "_headers_buffer"):
            self._headers_buffer[:] = [line for line in self._headers_buffer if not line.lower().startswith(b"date:")]
        super().send_header(keyword, value)

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


Fault = Mapping[str, Any]


class Faults:
    """Deals out the faults of a service; thread-safe.

    A fault is {"match", "kind", "after", "times"} and more by its kind. A call whose text has ``match`` meets it once
    ``after`` such calls (0) came through, ``times`` times (for ever).
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = [(fault, itertools.count(1)) for fault in faults]
        self._lock = threading.Lock()

    def met_by(self, text: str) -> list[Fault]:
        """Count a call; return the faults that it meets."""
        with self._lock:
            return list(self._strike(text))

    def first(self, text: str) -> Fault | None:
        """Return the first fault that a call meets; it does not count for those after it."""
        with self._lock:
            return next(self._strike(text), None)

    def _strike(self, text: str) -> Iterator[Fault]:
        for fault, calls in self._faults:
            if fault.get("match", "") in text:
                turn = next(calls) - fault.get("after", 0)
                if turn > 0 and (fault.get("times") is None or turn <= fault["times"]):
                    yield fault


@contextmanager
def in_thread(app: WSGIApplication) -> Iterator[str]:
    """Serves ``app`` on a free loopback port while the block runs; gives the base URL."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=QuietHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


@contextmanager
def in_process(factory: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Serves the app that ``module:function`` makes from keyword ``options`` in a process of its own, so that its
    memory and time are not those of what is tested. The options are JSON."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(factory, json.dumps(dict(options)), theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise RuntimeError(f"{factory} did not start")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join(5)


def _serve(factory: str, options: str, ready: Any) -> None:
    module, _, function = factory.partition(":")
    app = getattr(importlib.import_module(module), function)(**json.loads(options))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=QuietHandler)
    ready.send(server.server_port)
    server.serve_forever()


def closed_port() -> int:
    return find_free_port()
