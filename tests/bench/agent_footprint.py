"""What the node agent weighs and burns while the training runs and nothing happens, by whom it asks for notices.

    python -m tests.bench.agent_footprint [--seconds 60]

Run from the repository's root. Agents as on machines, with their own heartbeat, each beside a training that sleeps and
a metadata service on loopback; the coordinator is the tests' own.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from router.agent.config import AgentConfig
from tests.support.agents import agents
from tests.support.coordinator import Coordinator
from tests.support.metadata_service import MetadataService

SECONDS = 60.0
DIALECTS = ("none", "aws", "gcp", "azure")
SETTLE_S = 3.0
_TICKS = os.sysconf("SC_CLK_TCK")


def figures(seconds: float = SECONDS) -> Iterator[str]:
    """A line for each dialect: MiB resident of agent and guard, CPU seconds a minute of both."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        pids = {dialect: _started(stack, folder / dialect, dialect) for dialect in DIALECTS}
        time.sleep(SETTLE_S)
        families = {dialect: (pid, *_guards(pid)) for dialect, pid in pids.items()}
        before = {dialect: sum(map(_burnt, family)) for dialect, family in families.items()}
        began = time.monotonic()
        time.sleep(seconds)
        a_minute = 60 / (time.monotonic() - began)
        yield (
            f"AGENTS beside a training, {seconds:.0f} s of nothing new, a heartbeat every "
            f"{AgentConfig.heartbeat_seconds:.0f} s, load {os.getloadavg()[0]:.1f}"
        )
        for dialect, family in families.items():
            burnt = a_minute * (sum(map(_burnt, family)) - before[dialect])
            agent, *guards = map(_resident, family)
            yield (
                f"  notices from {dialect}: resident {agent:.1f} MiB, its guard {sum(guards):.1f} MiB; "
                f"of the processor {burnt:.2f} s a minute"
            )


def _started(stack: ExitStack, folder: Path, dialect: str) -> int:
    """The agent's process."""
    more: dict[str, Any] = {"heartbeat_seconds": AgentConfig.heartbeat_seconds}
    if dialect != "none":
        service = stack.enter_context(MetadataService().running())
        more |= {"metadata": dialect, "metadata_url": service.url}
    coordinator = stack.enter_context(Coordinator(1, "token-of-the-attempt-5f3a").running())
    (rank,) = stack.enter_context(agents(folder, coordinator, "exec sleep 3600", **more))
    coordinator.wait_state("running")
    return rank.process.pid


def _guards(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"--guard" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _burnt(pid: int) -> float:
    """Seconds of the processor, its own and the system's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="What the node agent weighs and burns while nothing happens.")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    for line in figures(parser.parse_args(arguments).seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
