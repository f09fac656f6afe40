"""`stepfare serve` as a process: health, the address in use, an orderly end; and its deployment files."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from router.console.server import GRACE_SECONDS, listening
from router.coordinator.server import MAX_OPEN_FILES, ListenError
from tests.support.console import console_client, query_context
from tests.support.listening import listening_port
from tests.support.narrowed import present
from tests.support.repository import ROOT

COMMAND = str(Path(sys.executable).with_name("stepfare"))
EXAMPLES = ROOT / "examples" / "serve"
PATIENCE = 60


@contextmanager
def served(home: Path, *options: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its URL without a slash."""
    environment = {**os.environ, "STEPFARE_HOME": str(home)}
    words = [COMMAND, "serve", "--port", str(port), *options]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, f"http://127.0.0.1:{listening_port(process)}"
        finally:
            process.kill()


def test_health_and_readiness_are_told_to_everybody(tmp_path: Path) -> None:
    with query_context(tmp_path) as context:
        client = console_client(context, lambda: None)
        assert client.get("/health").json()["status"] == "ok"
        assert (client.get("/ready").status_code, client.get("/ready").json()) == (200, {"status": "ready"})


def test_a_server_is_not_ready_once_a_later_version_has_upgraded_the_state(tmp_path: Path) -> None:
    with query_context(tmp_path) as context:
        with context.store._database.write() as connection:
            connection.execute(text("UPDATE stepfare_version SET version_num = '9999'"))
        answer = console_client(context, lambda: None).get("/ready")
    assert answer.status_code == 503
    assert "later version" in answer.json()["error"]["message"]


def test_a_server_whose_state_is_away_is_alive_and_not_ready(tmp_path: Path) -> None:
    with query_context(tmp_path) as context:
        client = console_client(context, lambda: None)
        context.store.close()
        assert client.get("/health").status_code == 200
        answer = client.get("/ready")
    assert answer.status_code == 503
    assert str(tmp_path) not in answer.text


def test_addresses_that_cannot_be_had_are_told_apart() -> None:
    with listening("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        said = f"127.0.0.1:{port}: another program"
        with pytest.raises(ListenError, match=said) as caught, listening("127.0.0.1", port):
            pass
        assert "--port" in caught.value.remedy
    for host in ("192.0.2.1", "no.such.host.invalid", "a" * 300):
        with pytest.raises(ListenError, match="no") as caught, listening(host, 0):
            pass
        assert "--host" in caught.value.remedy


@pytest.mark.slow
def test_an_address_in_use_is_said_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environment = {**os.environ, "STEPFARE_HOME": str(tmp_path)}
        done = subprocess.run(
            [COMMAND, "serve", "--port", str(port)], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: another program listens there" in done.stderr
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "sign in" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_finishes_what_it_answers(tmp_path: Path, sent: signal.Signals) -> None:
    with served(tmp_path, "--open-access") as (process, url):
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            # A request whose end comes after the signal.
            slow.sendall(b"POST /api/v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n")
            assert httpx.get(f"{url}/ready").status_code == 200
            process.send_signal(sent)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except OSError:
                    break
            else:
                raise AssertionError("the server goes on accepting")
            slow.sendall(b"{}")
            assert slow.recv(100).startswith(b"HTTP/1.1 4")
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_a_second_signal_ends_a_server_at_once(tmp_path: Path) -> None:
    with served(tmp_path, "--open-access") as (process, url):
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"POST /api/v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n")
            assert httpx.get(f"{url}/ready").status_code == 200
            process.send_signal(signal.SIGTERM)
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except OSError:
                    break
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 130
            assert time.monotonic() - began < 5
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def _words_of_serve(text: str) -> set[str]:
    """The options that lines with `stepfare serve`, or with its words as a list, name."""
    lines = [line for line in text.splitlines() if "serve" in line and not line.lstrip().startswith("#")]
    return {word for line in lines for word in re.findall(r"--[a-z][a-z-]*", line)}


@pytest.mark.parametrize("name", ["Containerfile", "stepfare-serve.service"])
def test_options_in_deployment_files_exist(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    help_text = subprocess.run([COMMAND, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    options = _words_of_serve(text)
    assert options
    assert {option for option in options if option not in help_text} == set()


def test_the_unit_restarts_and_waits_longer_than_answers_may_take() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(EXAMPLES / "stepfare-serve.service", encoding="utf-8")
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["TimeoutStopSec"]) > GRACE_SECONDS + 5
    assert int(service["LimitNOFILE"]) > MAX_OPEN_FILES // 2
    assert service["NoNewPrivileges"] == service["PrivateTmp"] == "yes"


def test_the_container_is_nobody_special_and_asks_for_its_health() -> None:
    lines = (EXAMPLES / "Containerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split(maxsplit=1)[0] for line in lines if line and not line.startswith(("#", " "))]
    assert words[0] == "FROM"
    assert "USER 10001" in lines
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert any("/health" in line for line in lines)


def test_the_proxy_leads_to_the_port_of_the_unit_with_the_name_that_was_asked_for() -> None:
    caddy = (EXAMPLES / "Caddyfile").read_text(encoding="utf-8")
    unit = (EXAMPLES / "stepfare-serve.service").read_text(encoding="utf-8")
    found = present(re.search(r"reverse_proxy 127\.0\.0\.1:(\d+)", caddy))
    assert f"--port {found[1]}" in unit
    assert "health_uri /ready" in caddy
    assert caddy.count("{") == caddy.count("}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (EXAMPLES / "stepfare-serve.service").read_text(encoding="utf-8")
    command = present(re.search(r"^ExecStart=(\S+)", text, re.MULTILINE))
    unit = tmp_path / "stepfare-serve.service"
    unit.write_text(text.replace(command[1], "/bin/true"), encoding="utf-8")
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "stepfare-serve.service" not in done.stderr, done.stderr
