"""Sandbox nodes found and ended: the packed node agent, trainings that will not end, numbers that come again."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from providers.fleet import CloudResource
from providers.sandbox import processes
from providers.sandbox.fleet import SandboxFleet
from providers.session import Settings
from router.controller.workspace.bootstrap import pack_agent
from tests.contract.fleet_contract import OURS, session
from tests.support import sandbox_nodes
from tests.support.agents import alive, configuration
from tests.support.busy import eventually, in_time
from tests.support.coordinator import Coordinator
from tests.support.repository import ROOT
from tests.support.sandbox_nodes import Node, pids_of

Start = Callable[..., Node]
TOKEN = "token-of-attempt-1"
STUBBORN = """\
trap '' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
touch begun
while :; do sleep 1; done
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes; what is left of them at the end is killed."""
    ids: list[str] = []

    def begin(script: str = sandbox_nodes.NODE, *, attempt: str = "a1", rank: int = 0, **more: str) -> Node:
        node = sandbox_nodes.start(tmp_path, attempt, rank, OURS, script, **more)
        ids.append(node.id)
        return node

    yield begin
    for node_id in ids:
        sandbox_nodes.kill(node_id)


def fleet(grace_s: float = 10.0) -> SandboxFleet:
    return SandboxFleet("sandbox", session("sandbox", Settings()), grace_s=grace_s)


def found(*nodes: Node) -> list[CloudResource]:
    """These nodes, as the fleet finds them, in their order."""
    by_id = {one.machine_id: one for one in fleet().found(()).resources}
    return [by_id[node.id] for node in nodes]


def test_several_processes_of_a_node_are_one_machine(start: Start) -> None:
    node = start()
    assert len(node.pids) >= 3
    assert len(set(node.groups.values())) >= 3
    (one,) = found(node)
    assert (one.attempt, one.state_id, one.rank, one.region, one.zone) == ("a1", OURS, 0, "", None)
    assert "a1-0" in one.what
    assert one.since is not None
    assert abs(one.since.timestamp() - psutil.Process(node.pid).create_time()) < 1


def agent(folder: Path, coordinator: Coordinator, start: Start, command: str, **more: float) -> Node:
    zipapp = folder / "agent.pyz"
    zipapp.write_bytes(pack_agent())
    config = configuration(folder / "rank-0", coordinator, 0, command, **more)
    return start(f"exec {shlex.join([sys.executable, str(zipapp), str(config)])}")


def test_the_agent_ends_its_training_which_saves_first(start: Start, tmp_path: Path) -> None:
    saved, began = tmp_path / "saved", tmp_path / "began"
    command = f"trap 'sleep 0.5; touch {saved}; exit 0' TERM; touch {began}; while :; do sleep 0.1; done"
    with Coordinator(1, TOKEN).running() as coordinator:
        node = agent(tmp_path, coordinator, start, command)
        eventually(began.exists)
        assert fleet().release(found(node)) == (None,)
    assert saved.exists()
    eventually(lambda: pids_of(node.id) == set())  # a `sleep 0.1` of the command may outlive its shell


def test_an_orphaned_training_is_found_and_ended(start: Start, tmp_path: Path) -> None:
    """Agent and guard are killed at the same moment: nobody is left to end the training."""
    began = tmp_path / "began"
    with Coordinator(1, TOKEN).running() as coordinator:
        node = agent(tmp_path, coordinator, start, f"echo $$ >{began}; while :; do sleep 0.1; done")
        eventually(lambda: began.exists() and began.read_text().strip())
        training = os.getpgid(int(began.read_text()))
        keepers = [pid for pid, group in node.groups.items() if group != training]
        assert len(keepers) == 2
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in keepers:
                os.kill(pid, number)
        eventually(lambda: not any(alive(pid) for pid in keepers))
        assert set(node.groups.values()) == {training}
        assert fleet().release(found(node)) == (None,)
    assert pids_of(node.id) == set()


def test_what_will_not_end_is_killed_after_the_grace(start: Start) -> None:
    node = start(STUBBORN)
    (one,) = found(node)
    begin = time.monotonic()
    assert fleet(0.4).release([one]) == (None,)
    assert time.monotonic() - begin >= 0.4
    assert in_time(begin, 6)
    assert node.pids == set()


def test_many_nodes_are_ended_at_the_same_time(start: Start) -> None:
    nodes = [start(STUBBORN, rank=rank) for rank in range(6)]
    begin = time.monotonic()
    assert fleet(0.4).release(found(*nodes)) == (None,) * 6
    assert in_time(begin, 8)
    assert [node.pids for node in nodes] == [set()] * 6


def test_a_child_that_hides_its_environment_goes_with_its_group(start: Start, tmp_path: Path) -> None:
    note = tmp_path / "hidden"
    node = start(f"env -i sh -c 'echo $$ >{note}; exec sleep 300' & touch begun; wait")
    eventually(lambda: note.exists() and note.read_text().strip())
    hidden = int(note.read_text())
    assert hidden not in node.pids
    assert fleet().release(found(node)) == (None,)
    eventually(lambda: not alive(hidden))


def test_a_marked_process_in_somebody_elses_group_goes_alone(start: Start, tmp_path: Path) -> None:
    """As start.sh in Terraform's group while an apply is under way."""
    node = start()
    note = tmp_path / "inner"
    marks = f"STEPFARE_ATTEMPT=a1 STEPFARE_NODE_ID={node.id}"
    terraform = f"{marks} sh -c 'echo $$ >{note}; exec sleep 300' & wait; echo went on; exec sleep 300"
    with subprocess.Popen(["sh", "-c", terraform], start_new_session=True, stdout=subprocess.PIPE) as outer:
        try:
            eventually(lambda: note.exists() and note.read_text().strip())
            assert int(note.read_text()) in node.pids
            assert fleet().release(found(node)) == (None,)
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"went on\n"
            assert outer.poll() is None
        finally:
            outer.kill()
            outer.wait(10)
    assert not alive(int(note.read_text()))


def test_a_number_that_somebody_else_has_now_is_not_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that was seen is gone, and its number is another's: here, one that was born at another moment."""
    node = start()
    everybody = processes.members()
    mine = [one for one in everybody if one.key.node_id == node.id]
    for one in mine:
        monkeypatch.setattr(one.process, "_ident", (one.pid, one.born - 100))
    before = node.pids
    processes.signal_groups(mine, everybody, signal.SIGKILL)
    for one in mine:
        processes.signal_groups([one], [], signal.SIGKILL)
    assert node.pids == before
    assert all(alive(pid) for pid in before)


@pytest.mark.parametrize("error", [psutil.AccessDenied(), psutil.NoSuchProcess(1), psutil.ZombieProcess(1)])
def test_a_process_that_cannot_be_read_is_nobodys(
    error: psutil.Error, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start("touch begun; exec sleep 300")
    pid, environ = node.pid, psutil.Process.environ

    def refuse(process: psutil.Process) -> object:
        if process.pid == pid:
            raise error
        return environ(process)

    assert found(node)
    monkeypatch.setattr(psutil.Process, "environ", refuse)
    assert [one for one in fleet().found(()).resources if one.machine_id == node.id] == []


def test_what_cannot_be_ended_is_said(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start("touch begun; exec sleep 300")
    (one,) = found(node)
    monkeypatch.setattr(processes, "signal_groups", lambda *_: None)
    monkeypatch.setattr("providers.sandbox.fleet._KILL_S", 0.1)
    monkeypatch.setattr("providers.sandbox.fleet._GUARD_S", 0.1)
    (error,) = fleet(0.1).release([one])
    assert error is not None
    assert str(node.pid) in error.remedy
    assert node.id in str(error)


def test_a_command_on_the_node_does_not_end_itself(start: Start, tmp_path: Path) -> None:
    """A sweep that somebody runs inside a training."""
    said = tmp_path / "said"
    program = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.integration.test_fleet_sandbox import fleet\n"
        "mine = [f for f in fleet().found(()).resources if f.machine_id == os.environ['STEPFARE_NODE_ID']]\n"
        "print(len(mine), fleet().release(mine)[0], flush=True)"
    )
    command: Sequence[str] = [sys.executable, "-c", program]
    node = start(f"{shlex.join(command)} >{said} 2>&1; touch begun; exec sleep 300")
    assert "1 failed: node" in said.read_text()
    assert "this very command runs on it" in said.read_text()
    assert alive(node.pid)
