"""How long the node agent takes to its first word, what it weighs, and how long its user data is.

    python -m tests.bench.agent

Run from the repository's root.
"""

from __future__ import annotations

import gzip
import hashlib
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from router.agent.config import AgentConfig
from router.controller.workspace.bootstrap import (
    Bootstrap,
    CoordinatorEndpoint,
    NodeSecrets,
    pack_agent,
    render_cloud_init,
)
from tests.support.agents import agents
from tests.support.coordinator import Coordinator

TOKEN = "token-of-the-attempt-5f3a"


def main() -> None:
    agent = pack_agent()
    print(f"agent.pyz {len(agent):,} bytes, {len(gzip.compress(agent, 9)):,} compressed")
    config = AgentConfig("attempt-1", "job", 0, 4, "torchrun train.py", "", "https://watch.example.com", "", "", "")
    home = CoordinatorEndpoint(config.coordinator, hashlib.sha256(agent).hexdigest())
    text = render_cloud_init(Bootstrap(config, home, NodeSecrets(TOKEN)))
    print(f"user data {len(text.encode()):,} bytes of 16,384")
    firsts, ends, resident, guards = [], [], [], []
    for _ in range(5):
        with TemporaryDirectory() as folder:
            first, end, weights = _one(Path(folder))
        firsts.append(first)
        ends.append(end)
        resident.append(weights[0])
        guards.append(sum(weights[1:]))
    print(f"start to heartbeat {statistics.median(firsts) * 1000:.0f} ms, slowest {max(firsts) * 1000:.0f} ms")
    print(f"start to end of `true` {statistics.median(ends) * 1000:.0f} ms")
    print(f"resident: agent {max(resident) / 1024:.1f} MiB, guard {max(guards) / 1024:.1f} MiB")


def _one(folder: Path) -> tuple[float, float, list[int]]:
    """(seconds to the first word, to the end of an empty job, KiB of the agent and of its guard)."""
    with Coordinator(1, TOKEN).running() as coordinator:
        began = time.perf_counter()
        with agents(folder / "a", coordinator, "sleep 60") as (rank,):
            coordinator.wait(lambda c: bool(c.heard))
            first = time.perf_counter() - began
            coordinator.wait_state("running")
            time.sleep(1)
            pid = rank.process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            guards = [int(c) for c in children if b"--guard" in Path(f"/proc/{c}/cmdline").read_bytes()]
            weights = [_resident(pid), *(_resident(guard) for guard in guards)]
            rank.process.terminate()
            rank.end()
    with Coordinator(1, TOKEN).running() as coordinator:
        began = time.perf_counter()
        with agents(folder / "b", coordinator, "true") as (rank,):
            rank.end()
            return first, time.perf_counter() - began, weights


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    main()
