"""From readable at the metadata service to taken by the coordinator, and what listening weighs.

    python -m tests.bench.notices [aws|gcp|azure ...] [--machines 200] [--seconds 30]

Machines of each dialect with the recommended polling, each told once at a random moment of its polls. The coordinator
is the real one, with its database, over loopback. Then the processor time of an agent over so many seconds.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from router.agent.calls import CoordinatorClient as Calls
from router.agent.config import AgentConfig, parse_config
from router.agent.notice_listener import NoticeListener
from router.coordinator.app import make_app
from router.coordinator.handlers import AgentMessageHandler, AgentReply
from router.coordinator.server import CoordinatorServer
from router.state.store import StateStore
from tests.support.agents import agents
from tests.support.coordinations import ATTEMPT, TOKEN, scene
from tests.support.coordinator import Coordinator
from tests.support.metadata_service import Machine, MetadataService

MACHINES = 200
# So many listen at once; all of them would compete for the two cores with what is measured.
AT_ONCE = 50
ANNOUNCE: dict[str, tuple[Callable[[Machine], None], float]] = {
    # What tells a machine, and within how many seconds after it began to listen: more than a poll.
    "aws": (Machine.interrupt, 10.0),
    "gcp": (Machine.preempt, 4.0),
    "azure": (Machine.event, 4.0),
}
HEADERS = ("median", "p90", "p99", "slowest")
CPU_SECONDS = 30.0


class Timed(AgentMessageHandler):
    """Remembers when each rank's notice was in the database."""

    def __init__(self, store: StateStore, logs: Path, clock: Callable[[], datetime]) -> None:
        super().__init__(store, logs, clock)
        self.taken: dict[int, float] = {}

    def answer(self, attempt: str, rank: int, message: str, authorization: str, body: dict[str, Any]) -> AgentReply:
        said = super().answer(attempt, rank, message, authorization, body)
        if message == "notice" and said[0] == 200:
            self.taken.setdefault(rank, time.monotonic())
        return said


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How soon the coordinator has a notice, and what listening weighs.")
    parser.add_argument("dialects", nargs="*", default=list(ANNOUNCE), metavar="aws|gcp|azure")
    parser.add_argument("--machines", type=int, default=MACHINES, help="of each dialect, two at least")
    parser.add_argument("--seconds", type=float, default=CPU_SECONDS, help="for which an agent is watched")
    asked = parser.parse_args(arguments)
    for dialect in asked.dialects:
        waits = _waits(dialect, asked.machines)
        cuts = statistics.quantiles(waits, n=100)
        shown = zip(HEADERS, (statistics.median(waits), cuts[89], cuts[98], max(waits)), strict=True)
        print(f"{dialect}: {len(waits)} notices, " + ", ".join(f"{name} {value:.2f} s" for name, value in shown))
    for dialect in ("none", *asked.dialects):
        resident, threads, cpu = _weight(dialect, asked.seconds)
        print(f"agent with {dialect}: {resident / 1024:.1f} MiB resident, {threads} threads, {cpu:.2f} % of a core")


def _waits(dialect: str, machines: int) -> list[float]:
    dice = random.Random(dialect)
    with TemporaryDirectory() as folder, scene(Path(folder), machines) as gang, MetadataService().running() as service:
        attendance = Timed(gang.store, Path(folder) / "logs", gang.clock)
        told: dict[int, float] = {}
        with CoordinatorServer(make_app(attendance, b"agent", gang.store.id), "127.0.0.1", 0) as server:
            for first in range(0, machines, AT_ONCE):
                ranks = range(first, min(first + AT_ONCE, machines))
                told |= _wave(dialect, ranks, attendance.taken, server.url, service, dice, Path(folder))
    return [attendance.taken[rank] - told[rank] for rank in range(machines)]


def _wave(
    dialect: str,
    ranks: range,
    taken: dict[int, float],
    coordinator: str,
    service: MetadataService,
    dice: random.Random,
    folder: Path,
) -> dict[int, float]:
    announce, within = ANNOUNCE[dialect]
    told: dict[int, float] = {}
    listening, machines = [], {}
    for rank in ranks:
        url, machines[rank] = service.add(f"{dialect}-{rank}")
        listening.append(_listen(dialect, rank, url, coordinator, folder))
    # Past the first look, which comes at once.
    time.sleep(2.0)
    for rank, machine in machines.items():
        threading.Timer(dice.uniform(0.0, within), _tell, (announce, machine, told, rank)).start()
    limit = time.monotonic() + 60
    while not all(rank in taken for rank in ranks):
        assert time.monotonic() < limit, f"missing: {set(ranks) - set(taken)}"
        time.sleep(0.05)
    for one in listening:
        one.finish(1.0)
    # Questions that still hang.
    for machine in machines.values():
        machine.set("maintenance-event", "NONE")
    return told


def _tell(announce: Callable[[Machine], None], machine: Machine, told: dict[int, float], rank: int) -> None:
    told[rank] = time.monotonic()
    announce(machine)


def _listen(dialect: str, rank: int, url: str, coordinator: str, folder: Path) -> NoticeListener:
    plain = AgentConfig(
        ATTEMPT,
        "job",
        rank,
        MACHINES,
        "true",
        "w",
        coordinator,
        "t",
        "l",
        str(folder / f"spool-{rank}" / "spool"),
        metadata=dialect,
        metadata_url=url,
    )
    config = parse_config({**asdict(plain), "mounts": []})
    calls = Calls(coordinator, attempt=ATTEMPT, rank=rank, token=TOKEN, ca_file=None, seconds=10.0)
    notices = NoticeListener(
        config,
        calls,
        who={"protocol": 1, "incarnation": f"life-{rank}"},
        events=queue.SimpleQueue(),
        note=lambda _: None,
        environment={"PATH": "/nowhere"},
    )
    notices.start()
    return notices


def _weight(dialect: str, seconds: float) -> tuple[int, int, float]:
    """(KiB resident, threads, percent of a core) of a packed agent that waits for its training."""
    more: dict[str, Any] = {} if dialect == "none" else {"metadata": dialect}
    with TemporaryDirectory() as folder, MetadataService().running() as service:
        url: dict[str, Any] = {"metadata_url": service.url} if more else {}
        with (
            Coordinator(1, TOKEN).running() as coordinator,
            agents(Path(folder), coordinator, "exec sleep 600", heartbeat_seconds=10.0, **more, **url) as (rank,),
        ):
            coordinator.wait_state("running")
            time.sleep(5.0)
            before = _ticks(rank.process.pid)
            time.sleep(seconds)
            used = _ticks(rank.process.pid) - before
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{rank.process.pid}/status").read_text().splitlines()
            )
            share = 100 * used / os.sysconf("SC_CLK_TCK") / seconds
            return int(status["VmRSS"].split()[0]), int(status["Threads"]), share


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    main()
