"""What a training pays for being asked, and how soon it begins to write when it is.

    python -m tests.bench.checkpoint

Run from the repository's root. The agent is a process of its own with a heartbeat of a second and a training whose
steps take 20 ms; "order" is when the coordinator is to give one, "first byte" is when the training begins to write.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from router.agent.control import AgentControlFolder
from router.agent.helper.stepfare_checkpoint import Agent, Checkpoints
from router.agent.imds import MachineNotice
from tests.support.agents import agents
from tests.support.coordinator import Coordinator

TOKEN = "token-of-the-attempt-5f3a"
CALLS, ORDERS, STEP_SECONDS, HEARTBEAT_SECONDS = 200_000, 20, 0.02, 1.0
PROGRAM = """
import sys, time
import stepfare_checkpoint
checkpoints = stepfare_checkpoint.Checkpoints(sys.argv[1])
def write(place):
    with open(sys.argv[2], "a") as stream:
        stream.write(f"{time.monotonic()}\\n")
    (place / "state").write_bytes(b"x" * 1000000)
step = 0
while True:
    step += 1
    time.sleep(float(sys.argv[3]))
    if checkpoints.wanted(step):
        checkpoints.save(step, write)
    checkpoints.progress(step)
"""


def main() -> None:
    with TemporaryDirectory() as folder:
        _per_step(Path(folder))
    with TemporaryDirectory() as folder:
        _from_order(Path(folder))
    with TemporaryDirectory() as folder:
        _from_notice(Path(folder))


def _per_step(folder: Path) -> None:
    (folder / "control").mkdir()
    for what, control in (("no agent", ""), ("nothing asked", str(folder / "control")), ("answered", "")):
        agent = Agent(control or None)
        if what == "answered":
            agent = Agent(str(folder / "control"))
            body = {"id": "a", "reason": "ordered", "until": time.monotonic()}
            (folder / "control" / "request.json").write_text(json.dumps(body))
        checkpoints = Checkpoints(folder / what, agent=agent)
        if checkpoints.wanted(0):
            checkpoints.save(0)
        for name, call in (("wanted", checkpoints.wanted), ("progress", checkpoints.progress)):
            began = time.perf_counter()
            for step in range(1, CALLS):
                call(step)
            print(f"{name}(), {what}: {(time.perf_counter() - began) / CALLS * 1e6:.2f} µs a step")


def _from_order(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    words = [sys.executable, folder / "program.py", folder / "run", folder / "writes", STEP_SECONDS]
    command = "exec " + shlex.join(map(str, words))
    waits, answers = [], []
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(folder / "a", coordinator, command, heartbeat_seconds=HEARTBEAT_SECONDS),
    ):
        coordinator.wait(lambda c: any("step" in beat for beat in c.messages("heartbeat")))
        for number in range(ORDERS):
            ordered = time.monotonic()
            coordinator.checkpoint = {"id": f"c-{number}", "seconds": 60.0}
            coordinator.wait(lambda c, id_=f"c-{number}": any(b["id"] == id_ for b in c.messages("saved")))  # type: ignore[misc]
            answers.append(time.monotonic() - ordered)
            waits.append(float((folder / "writes").read_text().split()[-1]) - ordered)
    _print("order to first byte", waits)
    _print("order to `saved` at the coordinator (1 MB)", answers)


def _from_notice(folder: Path) -> None:
    """Without the agent's process: from the event in its queue to a training that asks all the time."""
    control = AgentControlFolder(folder / "control", signals=True)
    control.prepare()
    checkpoints = Checkpoints(folder / "run", agent=Agent(str(control.folder)))
    waits = []
    for number in range(ORDERS):
        began = time.monotonic()
        control.announced(MachineNotice(f"n-{number}", "interruption", "aws", 120.0, ""))
        while not checkpoints.wanted(number):
            os.sched_yield()
        checkpoints.save(number, lambda _: waits.append(time.monotonic() - began))  # noqa: B023
        assert control.look()[0]["id"] == f"n-{number}"
    _print("notice in the agent to first byte, steps of no length", waits)


def _print(what: str, seconds: list[float]) -> None:
    median, slowest = statistics.median(seconds) * 1e3, max(seconds) * 1e3
    print(f"{what}: median {median:.1f} ms, slowest {slowest:.1f} ms of {len(seconds)}")


if __name__ == "__main__":
    main()
