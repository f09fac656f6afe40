"""Which process holds something, and whether it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from router.state import lock_owner as module
from router.state.lock_owner import LockOwner


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[bytes], LockOwner]]:
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        me = LockOwner.of_this_process()
        yield process, replace(me, pid=process.pid, started=module._start_of(process.pid) or "")
        process.kill()


def test_this_process_is_here() -> None:
    me = LockOwner.of_this_process()
    assert me == LockOwner.of_this_process()
    assert me.pid == os.getpid()
    assert me.started
    assert me.boot
    assert not me.is_gone()


def test_a_process_that_ends(other: tuple[subprocess.Popen[bytes], LockOwner]) -> None:
    process, holder = other
    assert not holder.is_gone()
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder.is_gone(), "dead, but nobody has waited for it"
    process.wait(60)
    assert holder.is_gone()


def test_a_later_process_of_the_same_number() -> None:
    assert replace(LockOwner.of_this_process(), started="12").is_gone()


@pytest.mark.parametrize("change", [{"host": "another"}, {"boot": "another"}])
def test_nobody_can_know_about_another_machine(change: dict[str, str]) -> None:
    assert not replace(LockOwner.of_this_process(), pid=2**22 + 1, **change).is_gone()


def test_where_there_is_no_proc(
    other: tuple[subprocess.Popen[bytes], LockOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = other
    monkeypatch.setattr(module, "_PROC", Path("/no/such/folder"))
    me = LockOwner.of_this_process()
    assert float(me.boot) == pytest.approx(psutil.boot_time(), abs=2)
    assert not me.is_gone()
    holder = replace(me, pid=process.pid, started=module._start_of(process.pid) or "")
    assert not holder.is_gone()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder.is_gone()
    process.wait(60)
    assert holder.is_gone()
    assert module._start_of(process.pid) is None
