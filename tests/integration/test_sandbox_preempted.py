"""Sandbox machines are told of their end, switched off like machines, and held up; nobody else's are touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from providers.sandbox.machines import SandboxMachine, SandboxMachines, SandboxNotice
from providers.sandbox.throttle import TrainingThrottle
from router.agent.imds import MachineNotice
from router.agent.imds_files import NoticeFolder
from tests.support import sandbox_nodes
from tests.support.busy import eventually
from tests.support.repository import ROOT
from tests.support.sandbox_nodes import Node, pids_of

OURS, THEIRS = "s0123456789", "s9876543210"
Start = Callable[..., Node]
# As an agent does: it says so when its training ends.
TELLS = """\
setsid sleep 300 & train=$!
touch begun
wait $train
touch said
sleep 300
"""
# Steps of a twentieth of a second, and an agent that counts as well.
STEPS = """\
STEPFARE_CONTROL=control setsid sh -c 'while :; do sleep 0.05; echo >>steps; done' &
touch begun
while :; do sleep 0.1; echo >>beats; done
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes; what is left of them at the end is killed."""
    ids: list[str] = []

    def begin(script: str = sandbox_nodes.NODE, *, rank: int = 0, state: str = OURS, attempt: str = "a1") -> Node:
        node = sandbox_nodes.start(tmp_path, attempt, rank, state, script)
        ids.append(node.id)
        return node

    yield begin
    for node_id in ids:
        sandbox_nodes.kill(node_id)


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_what_is_up_is_found_by_the_state_that_made_it(start: Start) -> None:
    one, other, theirs = start(rank=1), start(rank=0), start(state=THEIRS, attempt="b1")
    assert SandboxMachines(OURS).up() == (
        SandboxMachine(other.id, "a1", 0, other.folder),
        SandboxMachine(one.id, "a1", 1, one.folder),
    )
    assert [machine.id for machine in SandboxMachines(THEIRS).up()] == [theirs.id]
    assert SandboxMachines("s0000000000").up() == ()


def test_a_machine_that_is_switched_off_is_gone_whole_and_says_nothing(start: Start) -> None:
    gone, stays, theirs = start(TELLS, rank=0), start(rank=1), start(state=THEIRS, attempt="b1")
    eventually(lambda: len(gone.pids) == 2)
    hand = SandboxMachines(OURS)
    first, _ = hand.up()
    assert hand.switch_off([first], "drill-1") == ()
    assert gone.pids == set()
    assert len(stays.pids) == len(theirs.pids) == 3
    assert not (gone.folder / "said").exists()
    # By this Terraform sees that it is gone.
    assert (gone.folder / "taken").read_text() == "drill-1\n"
    assert not (stays.folder / "taken").exists()
    assert [machine.rank for machine in hand.up()] == [1]
    # Again is harmless.
    assert hand.switch_off([first], "drill-2") == ()


def test_one_that_is_being_started_is_not_up(tmp_path: Path) -> None:
    marks = {
        "STEPFARE_ATTEMPT": "a1",
        "STEPFARE_NODE_ID": "n1",
        "STEPFARE_RANK": "0",
        "STEPFARE_STATE": OURS,
        "STEPFARE_NODE_FOLDER": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    with subprocess.Popen(["sleep", "300"], env={**marks, "STEPFARE_WANTED": "1 2"}) as starting:
        try:
            eventually(lambda: "n1" in {one["STEPFARE_NODE_ID"] for one in sandbox_nodes.marked().values()})
            assert SandboxMachines(OURS).up() == ()
            assert SandboxMachines(OURS).switch_off([SandboxMachine("n1", "a1", 0, tmp_path)], "drill-1") == ()
            assert starting.poll() is None
        finally:
            starting.kill()


def test_the_agent_hears_what_is_announced_and_not_what_was_for_the_machine_before(start: Start) -> None:
    node, hand = start(), SandboxMachines(OURS)
    (machine,) = hand.up()
    heard: list[MachineNotice] = []
    watch = NoticeFolder(node.folder, 0.2)
    for said in (
        SandboxNotice("drill-1", "interruption", 30.0, "the machine is wanted back"),
        SandboxNotice("drill-2", "rebalance", None, "it may be wanted back"),
    ):
        hand.announce(machine, said)
        watch.look(heard.append)
        watch.look(heard.append)
    told = [(one.id, one.kind, one.what) for one in heard]
    assert told == [
        ("drill-1", "interruption", "the machine is wanted back"),
        ("drill-2", "rebalance", "it may be wanted back"),
    ]
    left = heard[0].left()
    assert left is not None
    assert 25 < left <= 30
    assert heard[1].left() is None
    hand.withdraw(machine)
    hand.withdraw(machine)
    hand.announce(machine, SandboxNotice("drill-3", "interruption", 30.0, "again"))
    sandbox_nodes.kill(node.id)
    start()
    assert not (node.folder / "notice.json").exists()


@pytest.mark.slow
def test_a_training_that_is_held_up_takes_about_three_times_as_long_and_its_agent_goes_on(start: Start) -> None:
    node, hand = start(STEPS), SandboxMachines(OURS)
    (node.folder / "control").mkdir()
    (node.folder / "control" / "progress.json").write_text('{"step_seconds": 0.05}')
    steps, beats = node.folder / "steps", node.folder / "beats"
    eventually(lambda: _lines(steps) > 2)

    def pace(path: Path, seconds: float) -> float:
        began, before = time.monotonic(), _lines(path)
        time.sleep(seconds)
        return (_lines(path) - before) / (time.monotonic() - began)

    freely, beaten = pace(steps, 2.0), _lines(beats)
    with TrainingThrottle(hand, hand.up(), 3.0):
        held = pace(steps, 4.0)
    assert _lines(beats) - beaten > 12
    assert 2.0 < freely / held < 4.5
    assert pace(steps, 1.0) > freely / 2
    with pytest.raises(ValueError, match="not slower"):
        TrainingThrottle(hand, hand.up(), 1.0)


def test_a_training_goes_on_when_whoever_held_it_up_is_killed(start: Start, tmp_path: Path) -> None:
    node = start(STEPS)
    program = f"""
import time
from providers.sandbox.throttle import TrainingThrottle
from providers.sandbox.machines import SandboxMachines
hand = SandboxMachines({OURS!r})
with TrainingThrottle(hand, hand.up(), 50.0):
    time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, start_new_session=True) as holder:
        try:
            eventually(lambda: _stopped(node))
        finally:
            holder.kill()
    eventually(lambda: not _stopped(node))
    steps = _lines(node.folder / "steps")
    eventually(lambda: _lines(node.folder / "steps") > steps + 20)


def _stopped(node: Node) -> bool:
    states = []
    for pid in pids_of(node.id):
        try:
            states.append(psutil.Process(pid).status())
        except psutil.NoSuchProcess:
            continue
    return psutil.STATUS_STOPPED in states
