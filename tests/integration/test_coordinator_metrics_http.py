"""``GET /metrics`` of a coordinator that serves: who gets an answer, and what agents notice of it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pricing.problems import InvalidInputError
from router.app.controller import open_coordinator
from router.app.settings import read_settings
from router.coordinator.app import make_app
from router.coordinator.metrics import Metrics
from router.coordinator.server import CoordinatorServer
from router.state.store import StateStore
from tests.support.coordinations import Scene, real_clock, scene


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, 1) as made:
        yield made


@contextmanager
def serving(one: Scene, *, token: str = "", metrics: bool = True) -> Iterator[CoordinatorServer]:
    made = Metrics(one.store, real_clock, real_clock, token=token) if metrics else None
    with CoordinatorServer(make_app(one.attendance, b"agent", one.store.id, made), "127.0.0.1", 0) as server:
        yield server


def get(server: CoordinatorServer, **headers: str) -> tuple[int, str, str]:
    """(status, type, text)."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request("GET", "/metrics", headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


def test_whoever_is_on_this_machine_is_answered(one: Scene) -> None:
    with serving(one) as server:
        status, kind, text = get(server)
    assert status == 200
    assert kind.startswith("text/plain")
    assert 'stepfare_attempts{phase="provisioning"} 1.0' in text


@pytest.mark.parametrize("header", ["X_Forwarded_For", "Forwarded", "X_Real_IP"])
def test_what_a_proxy_passed_on_needs_the_token(one: Scene, header: str) -> None:
    passed_on = {header: "for=203.0.113.9"}
    with serving(one) as server:
        assert get(server, **passed_on)[::2] == (401, '{"error": "token"}')
        assert get(server, **passed_on, Authorization="Bearer ")[0] == 401
    with serving(one, token="t-1") as server:
        assert get(server, **passed_on, Authorization="Bearer t-2")[0] == 401
        assert get(server, **passed_on, Authorization="Bearer t-1")[0] == 200


def test_without_metrics_there_are_none(one: Scene) -> None:
    with serving(one, metrics=False) as server:
        assert get(server)[0] == 404


def test_a_state_that_cannot_be_read_is_said_to_be_away(one: Scene) -> None:
    with serving(one) as server:
        one.store.close()
        assert get(server)[0] == 503


def test_whoever_listens_answers_with_the_token_of_the_deploy_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    (tmp_path / "deploy.yaml").write_text("coordinator: {metrics_token: env:METRICS}\n", encoding="utf-8")
    opened = read_settings({"METRICS": "t-1"})
    with StateStore.open(opened.state_url, now=real_clock()) as store:
        with open_coordinator(opened, store, real_clock, real_clock) as home:
            url = urlsplit(home.url)
            for token, status in (("", 401), ("t-1", 200)):
                headers = {"X-Forwarded-For": "203.0.113.9", "Authorization": f"Bearer {token}"}
                with closing(http.client.HTTPConnection(url.netloc, timeout=10)) as connection:
                    connection.request("GET", "/metrics", headers=headers)
                    assert connection.getresponse().status == status
        unset = read_settings({})
        with (
            pytest.raises(InvalidInputError, match=r"coordinator\.metrics_token"),
            open_coordinator(unset, store, real_clock, real_clock),
        ):
            raise AssertionError
