"""The console has the coordinator's bounds, connection by connection; a crowd leaves both servers small and open."""

from __future__ import annotations

import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.server import LIMITS, listening, server_config
from router.console.site import ConsoleSite
from router.coordinator import bodies
from router.coordinator.connections import ConnectionLimits
from tests.bench.front_door import CROWDS, MOST_MIB, console, coordinator, measure
from tests.support.busy import on_a_busy_machine
from tests.support.console import OPERATOR, query_context
from tests.support.coordinations import ATTEMPT, TOKEN, scene

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = "POST /api/v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\n{}Content-Length: {}\r\n\r\n"


@contextmanager
def serving(folder: Path, **changes: Any) -> Iterator[int]:
    """A console that knows who shows a token, whatever token; its port."""
    limits = replace(LIMITS, **changes)
    with query_context(folder) as context, listening("127.0.0.1", 0) as opened:
        site = ConsoleSite(context, lambda r: OPERATOR if "Authorization" in r.headers else None, AnswerCache())
        server = uvicorn.Server(server_config(make_console(site), limits=limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            yield opened.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=on_a_busy_machine(20))


def answers(client: socket.socket, count: int = 1) -> list[int]:
    """The statuses of that many answers; fewer where the connection ended before."""
    said = b""
    try:
        while said.count(b"HTTP/1.1 ") < count and (more := client.recv(65_536)):
            said += more
    except ConnectionError:
        pass
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


def test_a_connection_of_the_console_stays_for_the_next_request_and_its_head_has_a_time(tmp_path: Path) -> None:
    with serving(tmp_path, head_seconds=0.3) as port, connect(port) as client:
        for _ in range(3):
            client.sendall(HEALTH)
            assert answers(client) == [200]
        client.sendall(HEALTH[:20])
        assert answers(client) == []


def test_heads_of_the_console_have_a_length(tmp_path: Path) -> None:
    with serving(tmp_path) as port, connect(port) as client:
        client.sendall(HEALTH[:-2] + b"X-Long: " + b"x" * LIMITS.head_bytes)
        assert answers(client) == [431]


def test_requests_that_do_not_wait_for_the_answer_before_them_end_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path) as port, connect(port) as client:
        client.sendall(HEALTH * 3)
        assert answers(client, 2) == [200]


def test_the_console_asks_who_somebody_is_before_it_reads_a_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.1)
    with serving(tmp_path) as port, connect(port) as client:
        client.sendall(POST.format("", 100_000).encode() + b"x" * 1000)
        assert answers(client) == [401]
        assert answers(client) == []


def test_half_a_body_of_somebody_known_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.1)
    with serving(tmp_path) as port, connect(port) as client:
        client.sendall(POST.format("Authorization: Bearer x\r\n", 100_000).encode() + b"x" * 1000)
        assert answers(client) == [408]


def test_whoever_holds_much_goes_before_those_who_hold_little(tmp_path: Path) -> None:
    with serving(tmp_path, stranger_bytes=20_000) as port, ExitStack() as stack:
        small = stack.enter_context(connect(port))
        small.sendall(HEALTH[:-2])
        large = [stack.enter_context(connect(port)) for _ in range(3)]
        for client in large:
            client.sendall(HEALTH[:-2] + b"X-Long: " + b"x" * 9_000)
        # Who is closed is told so by an end; the one that is left may finish.
        assert answers(large[0]) == []
        small.sendall(b"\r\n")
        assert answers(small) == [200]


def test_half_bodies_with_a_token_leave_where_no_files_are_left(tmp_path: Path) -> None:
    head = f"POST /v1/attempts/{ATTEMPT}/ranks/0/logs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    with scene(tmp_path, 1) as one, one.serving(limits=ConnectionLimits(connections=3)) as server, ExitStack() as stack:
        body = json.dumps(one.body(0, "logs")).encode()
        clients = [stack.enter_context(connect(server.port)) for _ in range(3)]
        for client in clients:
            client.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        ends = time.monotonic() + on_a_busy_machine(20)
        said: list[int] = []
        while not said and time.monotonic() < ends:
            with connect(server.port) as late:
                late.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                said = answers(late)
        assert said == [200]
        # Whose token is still being checked when the late one comes leaves first: any of the three.
        gone = select.select(clients, [], [], on_a_busy_machine(20))[0]
        assert [answers(client) for client in gone[:1]] == [[]]


def test_of_half_bodies_with_a_token_the_oldest_leaves(tmp_path: Path) -> None:
    with serving(tmp_path, sending=1) as port, ExitStack() as stack:
        first, second = (stack.enter_context(connect(port)) for _ in range(2))
        for client in (first, second):
            client.sendall(
                (POST.format("Authorization: Bearer x\r\nContent-Type: application/json\r\n", 999) + "{").encode()
            )
        (gone,) = select.select([first, second], [], [], on_a_busy_machine(20))[0]
        assert answers(gone) == []


@pytest.mark.slow
@pytest.mark.parametrize("run", [console, coordinator])
@pytest.mark.parametrize("crowd", [CROWDS[0], CROWDS[4]], ids=lambda crowd: crowd.name)
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_a_crowd_leaves_a_server_small_and_open(tmp_path: Path, run: Any, crowd: Any, *, tls: bool) -> None:
    """The figures of 4,000 are in docs/performance.md."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with run(tmp_path, tls=tls) as server:
        cost = measure(server, crowd, 500, 2.0)
    # Without bounds the bodies alone took 100 MiB more.
    assert cost.most_mib < min(MOST_MIB, cost.rest_mib + 60)
    assert cost.asked > 0
    assert cost.failed == 0
