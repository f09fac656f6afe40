"""The coordinator of agent-and-coordinator.md, small and honest: it keeps what it hears, lets the gang meet, stops
the rest when one rank failed, and is away when the test says so."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.busy import eventually


@dataclass(frozen=True)
class Heard:
    """One message that was taken."""

    what: str
    rank: int
    body: dict[str, Any]


@dataclass
class Coordinator:
    """One attempt. ``leader_only``: the result of rank 0 is the gang's (Ray, Slurm)."""

    nodes: int
    token: str
    attempt: str = "attempt-1"
    leader_only: bool = False
    heard: list[Heard] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stops: set[int] = field(default_factory=set)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    over: bool = False
    # Off, as a coordinator of an earlier version.
    knows_orders: bool = True
    agent: bytes = b""
    url: str = ""
    _members: dict[int, dict[str, Any]] = field(default_factory=dict)
    _script: deque[int] = field(default_factory=deque)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _port: int = 0
    _server: ThreadingHTTPServer | None = None

    def answer(self, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """(status, JSON)."""
        if path.endswith("/orders"):
            return self._held(path, authorization, body)
        with self._lock:
            if self._script:
                return self._script.popleft(), {}
            return self._take(path, authorization, body)

    def _take(self, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
        parts = path.strip("/").split("/")
        if len(parts) != 6 or parts[:2] != ["v1", "attempts"] or parts[3] != "ranks":
            self.problems.append(f"path {path}")
            return 404, {}
        if parts[2] != self.attempt:
            return 404, {"error": "attempt_unknown"}
        if authorization != f"Bearer {self.token}":
            return 401, {"error": "token"}
        if self.over:
            return 410, {"error": "attempt_over"}
        message = json.loads(body)
        rank, what = int(parts[4]), parts[5]
        handle = {"hello": self._hello, "heartbeat": self._heartbeat, "logs": _taken, "ended": self._ended}.get(
            what, _any if what in ("saved", "notice", "orders", "measured") else None
        )
        if handle is None:
            self.problems.append(f"message {what}")
            return 404, {}
        status, answer = handle(rank, message)
        if status == 200 and what != "orders":
            self.heard.append(Heard(what, rank, message))
        return status, answer

    def _held(self, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """The question for orders, held until there is one; or answered as by a coordinator that does not know it."""
        server, message = self._server, json.loads(body)
        limit = time.monotonic() + min(25.0, message["wait"])
        while True:
            with self._lock:
                status, answer = self._take(path, authorization, body)
                if status != 200 or not self.knows_orders:
                    return (404, {"error": "message"}) if status == 200 else (status, answer)
                _, answer = self._heartbeat(int(path.split("/")[-2]), message)
            if answer["order"] == "checkpoint" and answer.get("id") == message["seen"]:
                answer = {"order": "continue"}
            if answer["order"] != "continue" or time.monotonic() > limit or self._server is not server:
                return 200, answer
            time.sleep(0.02)

    def _hello(self, rank: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if message["nodes"] != self.nodes or not 0 <= rank < self.nodes:
            return 409, {"error": "shape"}
        known = self._members.setdefault(rank, message)
        if known["incarnation"] != message["incarnation"]:
            return 409, {"error": "rank_taken"}
        self._members[rank] = message
        if len(self._members) < self.nodes:
            return 200, {"go": False, "retry_seconds": 0.05}
        leader = self._members[0]
        addresses = [self._members[one]["address"] for one in range(self.nodes)]
        where = {"master_address": leader["address"], "master_port": leader["master_port"], "addresses": addresses}
        if message.get("measures"):
            return 200, {"go": False, "retry_seconds": 0.05, "measure": where}
        if any(member.get("measures") for member in self._members.values()):
            return 200, {"go": False, "retry_seconds": 0.05}
        return 200, {"go": True, **where}

    def _heartbeat(self, rank: int, _: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.checkpoint and rank not in self.stops:
            return 200, {"order": "checkpoint", **self.checkpoint}
        return 200, {"order": "stop" if rank in self.stops else "continue"}

    def _ended(self, rank: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if message["state"] == "failed" or (self.leader_only and rank == 0):
            self.stops |= set(range(self.nodes)) - {rank}
        return 200, {}

    def messages(self, what: str, rank: int | None = None) -> list[dict[str, Any]]:
        """The bodies of one kind, in the order in which they came."""
        with self._lock:
            return [h.body for h in self.heard if h.what == what and rank in (None, h.rank)]

    def text(self, rank: int) -> str:
        """The output of a rank, put together by its offsets; what was sent twice counts once."""
        pieces = {message["offset"]: message["text"] for message in self.messages("logs", rank)}
        return "".join(text for _, text in sorted(pieces.items()))

    def wait(self, until: Callable[[Coordinator], bool], seconds: float = 30) -> None:
        """Until that is so; fails the test otherwise."""
        eventually(lambda: until(self), seconds, why=lambda: f"for {seconds} s; heard {self.heard[-20:]}")

    def wait_state(self, state: str, seconds: float = 30) -> None:

        def said(self: Coordinator) -> bool:
            with self._lock:
                ranks = {heard.rank for heard in self.heard if heard.body.get("state") == state}
            return len(ranks) == self.nodes

        self.wait(said, seconds)

    def fail_next(self, *statuses: int) -> None:
        """The next calls get these answers, with an empty object, as from a proxy on the way."""
        with self._lock:
            self._script.extend(statuses)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing listens on the port while the block runs; what was connected is cut off."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    @contextmanager
    def running(self) -> Iterator[Coordinator]:
        """Serves while the block runs, on one port throughout."""
        self._start()
        try:
            yield self
        finally:
            if self._server is not None:
                self._stop()

    def _start(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == f"/v1/agents/{hashlib.sha256(outer.agent).hexdigest()}"
                self._send(200 if found else 404, outer.agent if found else b"{}", "application/octet-stream")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = outer.answer(self.path, self.headers.get("Authorization", ""), body)
                self._send(status, json.dumps(answer).encode(), "application/json")

            def _send(self, status: int, data: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                # One that was killed meanwhile, or waits no more.
                with suppress(OSError):
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def _stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None


def _any(_: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return (200, {}) if message["protocol"] == 1 and message["incarnation"] else (400, {"error": "body"})


def _taken(_: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return (200, {}) if len(message["text"]) <= 65536 else (413, {"error": "too_long"})
