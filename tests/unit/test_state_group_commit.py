"""Commits of many threads are on the disk after few waits for it, and none returns before its own is."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from router.state.database import GroupCommit, GroupCommitError
from router.state.errors import StateError
from tests.support.new_state import open_state
from tests.support.state_values import NOW

THREADS, EACH = 8, 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "state.db-wal"
    path.write_bytes(b"")
    return path


def test_each_returns_after_a_wait_that_began_when_its_own_was_written(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: set[str] = set()
    waits = []

    def slow(handle: int) -> None:
        there = set(log.read_text().split())
        time.sleep(0.05)  # so that a busy machine, too, gets the others there meanwhile
        durable.update(there)
        waits.append(handle)

    monkeypatch.setattr(os, "fsync", slow)
    one, writing = GroupCommit(log), threading.Lock()

    def commits(thread: int) -> bool:
        fine = True
        for number in range(EACH):
            name = f"{thread}/{number}"
            with writing, log.open("a") as file:
                file.write(f"{name}\n")
            one.sync()
            fine = fine and name in durable
        return fine

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(commits, range(THREADS)))
    assert len(durable) == THREADS * EACH
    assert EACH <= len(waits) < THREADS * EACH / 2


def test_a_disk_that_does_not_take_it_is_an_error_each_time(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = GroupCommit(log)

    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        for _ in range(2):
            with pytest.raises(GroupCommitError, match="Input/output error"):
                one.sync()
    one.sync()


def test_without_a_log_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    GroupCommit(tmp_path / "none").sync()


def test_whoever_writes_to_a_state_hears_that_its_disk_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        real, calls = os.fsync, []

        def counted(handle: int) -> None:
            calls.append(handle)
            real(handle)

        monkeypatch.setattr(os, "fsync", counted)
        store.values.set("a", "b")
        assert len(calls) == 1
        assert store.values.get("a") == "b"
        assert len(calls) == 1, "who only reads waits for no disk"

        def broken(handle: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(StateError, match="a commit may not be on the disk: Input/output error"):
            store.values.set("a", "c")
