"""One process listens for all, another once it is gone; and the folder of the sandbox is the same for all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.app import controller as module
from router.app.controller import claim_shared_port, serve_as_standby, terraform_environment
from router.app.settings import read_settings
from tests.support.new_state import open_state
from tests.support.state_values import NOW


class PortTakenError(Exception):
    """As a server that cannot listen."""


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.005)


def test_it_serves_once_the_other_is_gone_and_until_the_block_ends() -> None:
    there, tried = threading.Event(), list[str]()
    serving = threading.Event()
    there.set()

    @contextmanager
    def serve() -> Iterator[None]:
        if not tried:
            tried.append("in vain")
            raise PortTakenError
        serving.set()
        yield
        tried.append("ended")

    with serve_as_standby(there.is_set, serve, PortTakenError):
        assert not serving.wait(0.1)
        there.clear()
        assert serving.wait(5)
        assert tried == ["in vain"]
    assert tried == ["in vain", "ended"]


def test_it_ends_where_it_never_had_to_serve() -> None:
    def never() -> Iterator[None]:
        raise AssertionError

    with serve_as_standby(lambda: True, contextmanager(never), PortTakenError):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "standing by"]


def test_of_two_who_begin_at_once_one_port_is_everyones(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        barrier, got = threading.Barrier(2), dict[int, int]()

        def begin(mine: int) -> None:
            barrier.wait()
            got[mine] = claim_shared_port(store, mine, lambda: NOW, lambda _other: True)

        both = [threading.Thread(target=begin, args=(port,)) for port in (4001, 4002)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert set(got.values()) == {int(store.values.get("coordinator_port") or 0)}
        # Where nobody is any more, the next one's is.
        assert claim_shared_port(store, 4003, lambda: NOW, lambda _other: False) == 4003
        assert store.values.get("coordinator_port") == "4003"


def test_it_lies_in_the_home_unless_somebody_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPFARE_CLOUDS", str(tmp_path / "none.yaml"))
    opened = read_settings({"PATH": "/bin"})
    assert opened.sandbox == tmp_path / "home" / "sandbox"
    assert terraform_environment(opened)["STEPFARE_SANDBOX"] == str(opened.sandbox)
    assert not opened.sandbox.exists()
    other = read_settings({"STEPFARE_SANDBOX": str(tmp_path / "cloud")})
    assert other.sandbox == tmp_path / "cloud"
    assert terraform_environment(other)["STEPFARE_SANDBOX"] == str(tmp_path / "cloud")
