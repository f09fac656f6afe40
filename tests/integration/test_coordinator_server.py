"""The server itself: addresses, certificates, restarts, and clients that mean no good."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from router.app.controller import is_serving
from router.coordinator import bodies
from router.coordinator.app import make_app
from router.coordinator.connections import ConnectionLimits
from router.coordinator.messages import LARGEST_BODY
from router.coordinator.server import CoordinatorServer, ListenError
from tests.support.agents import agents
from tests.support.busy import in_time
from tests.support.certificates import private_pem, write_certificate
from tests.support.coordinations import ATTEMPT, TOKEN, Scene, scene


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, 1) as made:
        yield made


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) for 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = write_certificate(folder)
    own = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    (folder / "locked.pem").write_bytes(private_pem(own, _passphrase()))
    other = ec.generate_private_key(ec.SECP256R1())
    (folder / "other.pem").write_bytes(private_pem(other, serialization.NoEncryption()))
    return cert, key


def _passphrase() -> serialization.KeySerializationEncryption:
    return serialization.BestAvailableEncryption(b"open sesame")


def _call(
    port: int, method: str, path: str, body: bytes | None = None, token: str = TOKEN
) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_routes(one: Scene) -> None:
    with one.serving(b"the agent") as server:
        status, headers, body = _call(server.port, "GET", "/v1/health")
        assert (status, json.loads(body)["state"]) == (200, one.store.id)
        assert set(json.loads(body)) == {"state", "version"}
        assert {name.lower() for name in headers} == {"date", "connection", "content-type", "content-length"}
        digest = "0a7a7a8c1d0a5e4e3a1f7f5b4f4f4a0c2cf1d3a29b8c4e7a5d6f7e8c9b0a1d2e"
        assert _call(server.port, "GET", f"/v1/agents/{digest}")[0] == 404
        for path in ("/", "/docs", "/redoc", "/openapi.json", "/v1", "/v1/attempts", f"/v1/attempts/{ATTEMPT}"):
            assert _call(server.port, "GET", path)[0] == 404
        base = f"/v1/attempts/{ATTEMPT}/ranks"
        assert _call(server.port, "GET", f"{base}/0/hello")[0] == 405
        hello = json.dumps(one.body(0, "hello")).encode()
        assert _call(server.port, "POST", f"{base}/0/hello", hello)[0] == 200
        for rank in ("x", "-1", "00000000", "１", "9" * 5000, "1"):
            status, _, body = _call(server.port, "POST", f"{base}/{quote(rank)}/hello", hello)
            assert (status, json.loads(body)) == (409, {"error": "shape"})
        assert _call(server.port, "POST", f"{base}/0/hello", hello, token="x")[0] == 401


def test_bodies_that_are_too_long(one: Scene) -> None:
    with one.serving() as server:
        path = f"/v1/attempts/{ATTEMPT}/ranks/0/logs"
        fits = json.dumps(one.body(0, "logs")).encode().ljust(LARGEST_BODY)
        assert _call(server.port, "POST", path, fits)[0] == 200
        status, _, body = _call(server.port, "POST", path, fits + b" ")
        assert (status, json.loads(body)) == (413, {"error": "body"})
        assert one.log(0) == "step\n"


def test_a_body_without_end_is_cut_off(one: Scene) -> None:
    with one.serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(_head("Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        with pytest.raises(OSError):  # noqa: PT011
            client.sendall(chunk * 1000)


def test_a_body_that_does_not_come_is_not_waited_for(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.2)
    with one.serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(_head("Content-Length: 100") + b"{")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_is_closed(one: Scene) -> None:
    with one.serving(limits=ConnectionLimits(head_seconds=0.2)) as server, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10)) for _ in range(2)]
        clients[1].sendall(b"POST /v1/att")
        assert [client.recv(100) for client in clients] == [b"", b""]


def test_what_goes_wrong_inside_is_not_told(
    one: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(f"value {TOKEN}")

    with one.serving() as server:
        monkeypatch.setattr(one.attendance, "answer", broken)
        status, _, body = _call(server.port, "POST", f"/v1/attempts/{ATTEMPT}/ranks/0/hello", b"{}")
    assert (status, body) == (500, b"{}")
    assert "RuntimeError" in caplog.text
    assert "in broken" in caplog.text
    assert TOKEN not in caplog.text


def test_serving_ends_in_time_whatever_is_connected(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr(type(one.attendance), "answer", lambda *_: held.wait(20) and (200, {}))
    with ExitStack() as clients:
        with one.serving() as server:

            def connect() -> socket.socket:
                return clients.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))

            connect()
            connect().sendall(b"GET /v1/hea")
            connect().sendall(_head("Content-Length: 100") + b"{")
            connect().sendall(_head("Content-Length: 2") + b"{}")
            time.sleep(0.3)
            began = time.monotonic()
        assert in_time(began, 2)
        held.set()
    with one.serving() as again:
        assert again.port == server.port
        assert _call(again.port, "GET", "/v1/health")[0] == 200
    assert not any(thread.name == "coordinator" for thread in threading.enumerate())


def test_a_port_that_is_taken_is_said(one: Scene) -> None:
    with one.serving() as server:
        other = CoordinatorServer(make_app(one.attendance, b"", one.store.id), "127.0.0.1", server.port)
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{server.port}: Address already in use") as e:
            other.__enter__()
        assert "choose another" in e.value.remedy


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_ours(one: Scene, host: str) -> None:
    with pytest.raises(ListenError, match=host) as error:
        CoordinatorServer(make_app(one.attendance, b"", ""), host, 0).__enter__()
    assert error.value.remedy


def test_ipv6(one: Scene) -> None:
    with CoordinatorServer(make_app(one.attendance, b"", one.store.id), "::1", 0) as server:
        assert server.url == f"http://[::1]:{server.port}"
        assert is_serving(server.url, one.store.id, 5)


def test_certificates_that_cannot_be_used(one: Scene, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    (tmp_path / "empty.pem").write_text("")
    wrong: list[tuple[Path | None, Path | None]] = [
        (tmp_path / "none.pem", key), (cert, tmp_path / "none.pem"), (cert, cert.parent / "other.pem"), (cert, None),
        (cert, cert.parent / "locked.pem"), (tmp_path / "empty.pem", key), (tmp_path, key), (None, key),
    ]  # fmt: skip
    for first, second in wrong:
        with pytest.raises(ListenError, match=r"pem|test_certificates") as error:
            CoordinatorServer(make_app(one.attendance, b"", ""), "127.0.0.1", 0, first, second).__enter__()
        assert error.value.remedy
        assert "PRIVATE KEY" not in str(error.value)


def test_agents_over_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with scene(tmp_path, 2) as gang:
        app = make_app(gang.attendance, b"agent", gang.store.id)
        with CoordinatorServer(app, "127.0.0.1", 0, cert, key) as server:
            gang.url = server.url
            assert server.url.startswith("https://")
            assert is_serving(server.url, gang.store.id, 5, str(cert))
            assert not is_serving(server.url, gang.store.id, 5)
            assert not is_serving(server.url.replace("https", "http"), gang.store.id, 1)
            with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
                plain.sendall(_head("Content-Length: 0"))
                assert not plain.recv(100).startswith(b"HTTP")
            with agents(tmp_path / "a", gang.told, "echo hi", ca_file=str(cert)) as ranks:
                assert [rank.end() for rank in ranks] == [0, 0]
            with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
                context = ssl.create_default_context(cafile=str(cert))
                with context.wrap_socket(raw, server_hostname="127.0.0.1"):
                    began = time.monotonic()
                    server.__exit__()
                    assert in_time(began, 2)
        assert [gang.log(rank) for rank in range(2)] == ["hi\n", "hi\n"]
        assert gang.attempt.result == "finished"


def test_whoever_never_gets_to_tls_is_not_waited_for(one: Scene, certificate: tuple[Path, Path]) -> None:
    app = make_app(one.attendance, b"agent", one.store.id)
    with (
        CoordinatorServer(app, "127.0.0.1", 0, *certificate, limits=ConnectionLimits(head_seconds=0.2)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as client,
    ):
        assert client.recv(1) == b""


def test_whether_ours_is_there(one: Scene) -> None:
    with one.serving() as server:
        assert is_serving(server.url, one.store.id, 5)
        assert is_serving(f"{server.url}/", one.store.id, 5)
        assert not is_serving(server.url, "s0123456789", 5)
    assert not is_serving(server.url, one.store.id, 1)
    for url in ("", "nonsense", "http://", "ftp://127.0.0.1/x", f"http://127.0.0.1:{server.port}x"):
        assert not is_serving(url, one.store.id, 1)


def test_one_that_listens_and_says_nothing_is_not_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert not is_serving(f"http://127.0.0.1:{silent.getsockname()[1]}", "s", 0.2)
        assert in_time(began, 2)


def _head(line: str) -> bytes:
    path = f"/v1/attempts/{ATTEMPT}/ranks/0/logs"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n{line}\r\n\r\n".encode()
