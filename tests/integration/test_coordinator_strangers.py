"""Whoever has no token costs the coordinator next to nothing: heads, bodies, connections, over real sockets."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from router.coordinator import bodies, messages
from router.coordinator import server as server_module
from router.coordinator.connections import ConnectionLimits, ConnectionRegistry
from router.coordinator.handlers import AgentMessageHandler
from tests.support.busy import eventually, on_a_busy_machine
from tests.support.coordinations import ATTEMPT, TOKEN, Scene, scene

KIB = 1024
PATH = f"/v1/attempts/{ATTEMPT}/ranks/0/logs"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, 1) as made:
        yield made


class Crowds:
    """The one that counts now."""

    last: ConnectionRegistry


@pytest.fixture(autouse=True)
def _crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(limits: ConnectionLimits) -> ConnectionRegistry:
        Crowds.last = ConnectionRegistry(limits)
        return Crowds.last

    monkeypatch.setattr(server_module, "ConnectionRegistry", made)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=on_a_busy_machine(20))


def head(*lines: str, path: str = PATH, method: str = "POST") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


def status(client: socket.socket) -> int:
    """That of the answer; 0 where the connection ended without one."""
    said = b""
    try:
        while b"\r\n" not in said and (more := client.recv(4096)):
            said += more
    except ConnectionError:
        pass
    return int(said.split()[1]) if said else 0


def until_refused(client: socket.socket, piece: bytes, most: int) -> int:
    """Sends the piece again and again until nobody takes it any more; how many bytes went."""
    sent = 0
    try:
        while sent < most:
            client.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    return sent


@pytest.mark.parametrize(
    "endless", [b"X-More: " + b"x" * 1000 + b"\r\n", b"x" * 1000], ids=["many headers", "one header without end"]
)
def test_a_head_has_an_end(one: Scene, endless: bytes) -> None:
    with one.serving() as server, connect(server.port) as client:
        client.sendall(head()[:-2] + b"X-One: ")
        # What two kernels hold on the way, and no more than that.
        assert until_refused(client, endless * 64, 400_000_000) < 64_000_000


def test_a_head_that_is_too_long_is_told_so_and_one_that_fits_is_taken(one: Scene) -> None:
    with one.serving(limits=ConnectionLimits(head_bytes=2 * KIB)) as server:
        for more, expected in ((1 * KIB, 200), (3 * KIB, 431)):
            with connect(server.port) as client:
                client.sendall(head(f"X-Long: {'x' * more}", path="/v1/health", method="GET"))
                assert status(client) == expected


def test_a_body_may_come_with_its_head_however_long_both_are(one: Scene) -> None:
    with one.serving(limits=ConnectionLimits(head_bytes=2 * KIB)) as server, connect(server.port) as client:
        body = json.dumps(one.body(0, "logs")).encode().ljust(100 * KIB)
        client.sendall(head(f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}") + body)
        assert status(client) == 200


@pytest.mark.parametrize(
    "lines", [(), ("Authorization: Bearer wrong",), ("Authorization: Basic x",)], ids=["none", "wrong", "other"]
)
def test_nobody_decodes_a_body_before_the_token_is_right(
    one: Scene, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    decoded: list[bytes] = []
    real = messages.decode_body

    def decoding(data: bytes) -> dict[str, Any]:
        decoded.append(data)
        return real(data)

    monkeypatch.setattr(messages, "decode_body", decoding)
    body = json.dumps(one.body(0, "logs")).encode()
    with one.serving() as server:
        with connect(server.port) as client:
            client.sendall(head(*lines, f"Content-Length: {len(body)}") + body)
            assert status(client) == 401
        assert decoded == []
        with connect(server.port) as client:
            client.sendall(head(f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}") + body)
            assert status(client) == 200
        assert decoded


def test_paths_are_looked_at_before_bodies(one: Scene) -> None:
    with one.serving() as server:
        for path, expected in ((PATH.replace(ATTEMPT, "other"), 404), ("/v1/attempts/x", 404), ("/x", 404)):
            with connect(server.port) as client:
                client.sendall(head("Authorization: Bearer x", "Content-Length: 2", path=path) + b"{}")
                assert status(client) == expected


def test_half_a_body_without_a_token_is_not_waited_for_nor_kept(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once: what each has sent is dropped as it comes, and the answer does not wait for the rest."""
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.2)
    with one.serving() as server, ExitStack() as stack:
        clients = [stack.enter_context(connect(server.port)) for _ in range(40)]
        for client in clients:
            client.sendall(head("Authorization: Bearer x", "Content-Length: 500000") + b" " * 100_000)
        assert {status(client) for client in clients} == {401}


def test_the_connections_of_one_address_without_a_token_have_an_end(one: Scene) -> None:
    """The one that came first goes: an agent that is about to show its token is not kept out by those that wait."""
    with one.serving(limits=ConnectionLimits(per_address=3, storm_seconds=0)) as server, ExitStack() as stack:
        waiting = []
        for _ in range(3):
            waiting.append(stack.enter_context(connect(server.port)))
            waiting[-1].sendall(b"POST /v1/att")
        body = json.dumps(one.body(0, "logs")).encode()
        with connect(server.port) as agent:
            agent.sendall(head(f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}") + body)
            assert status(agent) == 200
        assert status(waiting[0]) == 0
        waiting[2].settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting[2].recv(1)


def test_whoever_showed_a_token_is_not_counted(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of machines may call from one address, and hold a connection each for their orders."""
    taken = threading.Semaphore(0)
    real = AgentMessageHandler.answer

    def answering(self: AgentMessageHandler, *given: Any) -> Any:
        taken.release()
        return real(self, *given)

    monkeypatch.setattr(AgentMessageHandler, "answer", answering)
    asks = {"protocol": 1, "incarnation": "life-0", "seen": "", "wait": 20}
    body = json.dumps(asks).encode()
    with (
        one.serving(limits=ConnectionLimits(per_address=2, strangers=2, storm_seconds=0)) as server,
        ExitStack() as stack,
    ):
        held = []
        for _ in range(6):
            held.append(stack.enter_context(connect(server.port)))
            path = PATH.replace("logs", "orders")
            held[-1].sendall(head(f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}", path=path) + body)
            assert taken.acquire(timeout=on_a_busy_machine(20))
        server._app.state.close()  # what is held is answered
        assert [status(client) for client in held] == [200] * 6


def test_many_agents_may_call_at_once_from_one_address(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restart of the coordinator, which knows no token then: none is closed while its token is looked at."""
    release = threading.Event()
    real = AgentMessageHandler.refusal

    def slowly(self: AgentMessageHandler, *given: Any) -> Any:
        assert release.wait(on_a_busy_machine(20))
        return real(self, *given)

    monkeypatch.setattr(AgentMessageHandler, "refusal", slowly)
    body = json.dumps(one.body(0, "logs")).encode()
    with one.serving(limits=ConnectionLimits(per_address=2, storm_seconds=0)) as server, ExitStack() as stack:
        agents = [stack.enter_context(connect(server.port)) for _ in range(2)]
        for agent in agents:
            agent.sendall(head(f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}") + body)
        eventually(lambda: len(Crowds.last._checking) == 2)
        for _ in range(4):
            agents.append(stack.enter_context(connect(server.port)))
            agents[-1].sendall(head(f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}") + body)
            eventually(lambda: len(Crowds.last._checking) == len(agents))
        release.set()
        assert [status(agent) for agent in agents] == [200] * 6


def test_no_more_connections_than_there_are_files_for(one: Scene) -> None:
    with one.serving(limits=ConnectionLimits(connections=3)) as server, ExitStack() as stack:
        clients = [stack.enter_context(connect(server.port)) for _ in range(3)]
        with connect(server.port) as late:
            late.sendall(head(path="/v1/health", method="GET"))
            assert status(late) == 200
        assert status(clients[0]) == 0


def test_a_stranger_does_not_stay(one: Scene) -> None:
    """One who asks for what needs no token, and never reads it."""
    agent = b"x" * 50_000_000
    path = f"/v1/agents/{hashlib.sha256(agent).hexdigest()}"
    with one.serving(agent, limits=ConnectionLimits(stranger_seconds=0.3)) as server, connect(server.port) as client:
        client.sendall(head(path=path, method="GET"))
        with connect(server.port) as later:
            assert status(later) == 0
        read = 0
        try:
            while more := client.recv(1_000_000):
                read += len(more)
        except ConnectionError:
            pass
        assert read < len(agent)


def test_a_second_request_of_a_connection_and_headers_after_a_body_are_nobodys(one: Scene) -> None:
    body = json.dumps(one.body(0, "logs")).encode()
    first = head(f"Authorization: Bearer {TOKEN}", "Transfer-Encoding: chunked")
    chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n" + b"X-After: 1\r\n" * 1000 + b"\r\n"
    with one.serving() as server, connect(server.port) as client:
        client.sendall(first + chunked + head(path="/v1/health", method="GET") * 500)
        said = b""
        try:
            while more := client.recv(65_536):
                said += more
        except ConnectionError:
            pass
        assert said.startswith(b"HTTP/1.1 200 ")
        assert said.count(b"HTTP/1.1") == 1
    assert one.log(0) == "step\n"
