"""TLS handshakes: counted from the first moment, so many at a time, and nobody who stops in one keeps others out."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from router.app.controller import is_serving
from router.coordinator.app import make_app
from router.coordinator.connections import ConnectionLimits, HandshakeQueue, gate_handshakes
from router.coordinator.server import CoordinatorServer
from tests.support.busy import on_a_busy_machine
from tests.support.certificates import write_certificate
from tests.support.coordinations import Scene, scene

# The head of a record of TLS whose 512 bytes do not follow.
BEGUN = b"\x16\x03\x01\x02\x00"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, 1) as made:
        yield made


def serving(gang: Scene, folder: Path, **limits: Any) -> CoordinatorServer:
    app = make_app(gang.attendance, b"agent", gang.store.id)
    return CoordinatorServer(app, "127.0.0.1", 0, *write_certificate(folder), limits=ConnectionLimits(**limits))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=on_a_busy_machine(30))


def ended(client: socket.socket) -> bool:
    """Whether the server ends a connection on which nothing is said, while the client waits."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_clients_that_stop_in_their_handshake_make_room_for_who_waits(gang: Scene, tmp_path: Path) -> None:
    with serving(gang, tmp_path, handshakes=2, handshake_seconds=0.05) as server, ExitStack() as stack:
        stopped = [stack.enter_context(connect(server.port)) for _ in range(2)]
        for client in stopped:
            client.sendall(BEGUN)
        assert is_serving(server.url, gang.store.id, on_a_busy_machine(20), str(tmp_path / "cert.pem"))
        assert ended(stopped[0])


def test_who_is_silent_takes_no_handshake_from_others(gang: Scene, tmp_path: Path) -> None:
    limits = {"handshakes": 1, "handshake_seconds": 600.0, "head_seconds": 600.0}
    with serving(gang, tmp_path, **limits) as server, connect(server.port), connect(server.port):
        assert is_serving(server.url, gang.store.id, on_a_busy_machine(20), str(tmp_path / "cert.pem"))


def test_who_has_not_begun_to_speak_tls_is_counted(gang: Scene, tmp_path: Path) -> None:
    with serving(gang, tmp_path, pending=2, head_seconds=600.0) as server, ExitStack() as stack:
        first, _, _ = (stack.enter_context(connect(server.port)) for _ in range(3))
        assert ended(first)


class Handshake:
    """One that the test ends."""

    def __init__(self, queue: HandshakeQueue, begun: list[Handshake]) -> None:
        self._queue, self._begun, self.is_dropped = queue, begun, False

    def begin(self) -> None:
        self._begun.append(self)

    def drop(self) -> None:
        self.is_dropped = True
        self._queue.remove(self)  # type: ignore[arg-type]


def test_the_newest_and_the_oldest_begin_in_turn() -> None:
    async def play() -> tuple[list[Handshake], list[Handshake]]:
        queue, begun = HandshakeQueue(ConnectionLimits(handshakes=1)), list[Handshake]()
        waiting = [Handshake(queue, begun) for _ in range(6)]
        for each in waiting:
            queue.add(each)  # type: ignore[arg-type]
        for number in range(5):
            queue.remove(begun[number])  # type: ignore[arg-type]
        return waiting, begun

    waiting, begun = asyncio.run(play())
    assert [waiting.index(each) for each in begun] == [0, 1, 5, 2, 4, 3]
    assert not any(each.is_dropped for each in waiting)


@pytest.mark.parametrize(("pending", "accepted"), [(1, 1), (16, 1), (128, 8), (4096, 64)])
def test_whoever_is_accepted_keeps_a_place_long_enough_for_a_handshake(
    pending: int, accepted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handshake takes four rounds of the loop; 64 accepted in each round once took all 128 places in two."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 * 4096, 8 * 4096))

    async def gated() -> int:
        loop: Any = asyncio.get_running_loop()
        loop.create_server = lambda factory, *, backlog: backlog
        gate_handshakes(ConnectionLimits(pending=pending))
        most: int = loop.create_server(asyncio.Protocol, ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), backlog=64)
        return most

    assert asyncio.run(gated()) == accepted
