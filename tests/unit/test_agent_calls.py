"""What the agent makes of a coordinator's answers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from router.agent.calls import Backoff, CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError
from tests.support.service import closed_port

TOKEN = "token-canary-8d1b7c"


@contextmanager
def _answering(
    status: int, body: bytes, **headers: str
) -> Iterator[tuple[CoordinatorClient, list[tuple[str, str | None]]]]:
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield _coordinator(server.server_port), seen
    finally:
        server.shutdown()
        server.server_close()


def _coordinator(port: int) -> CoordinatorClient:
    return CoordinatorClient(
        f"http://127.0.0.1:{port}/base/", attempt="a 1", rank=3, token=TOKEN, ca_file=None, seconds=5
    )


def test_one_call() -> None:
    with _answering(200, b'{"order": "continue"}') as (coordinator, seen):
        assert coordinator.post("heartbeat", {}) == {"order": "continue"}
    assert seen == [("/base/v1/attempts/a%201/ranks/3/heartbeat", f"Bearer {TOKEN}")]


@pytest.mark.parametrize(
    ("status", "body", "wait"),
    [
        (200, b"<html>", None),
        (200, b"[]", None),
        (404, b"<html>not here</html>", None),
        (403, b"{}", None),
        (429, b'{"error": "slow"}', "7"),
        (500, b'{"error": "bug"}', None),
        (503, b"", "9999"),
    ],
)
def test_what_is_not_the_coordinators_own_no_is_tried_again(status: int, body: bytes, wait: str | None) -> None:
    headers = {"Retry_After": wait} if wait else {}
    with _answering(status, body, **headers) as (coordinator, _), pytest.raises(CoordinatorAwayError) as away:
        coordinator.post("heartbeat", {})
    assert away.value.wait == (min(60.0, float(wait)) if wait else None)
    assert TOKEN not in str(away.value)


@pytest.mark.parametrize("status", [401, 403, 404, 409, 410])
def test_its_own_no_is_final(status: int) -> None:
    with (
        _answering(status, b'{"error": "rank_taken"}') as (coordinator, _),
        pytest.raises(CoordinatorRefusalError) as refused,
    ):
        coordinator.post("hello", {})
    assert refused.value.word == "rank_taken"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with (
        _answering(200, b"{}") as (_, elsewhere),
        _answering(status, b"", Location=f"http://127.0.0.1:{closed_port()}/") as (coordinator, seen),
        pytest.raises(CoordinatorAwayError),
    ):
        coordinator.post("hello", {})
    assert len(seen) == 1
    assert elsewhere == []


def test_nobody_there() -> None:
    with pytest.raises(CoordinatorAwayError, match="refused"):
        _coordinator(closed_port()).post("hello", {})


def test_waits_double_spread_out_and_begin_again() -> None:
    backoff = Backoff(1.0, 10.0, random.Random(3))
    waits = [backoff.next() for _ in range(8)]
    for wait, whole in zip(waits, [1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert whole / 2 <= wait <= whole
    assert len(set(waits)) == len(waits)
    backoff.reset()
    assert backoff.next() <= 1.0
