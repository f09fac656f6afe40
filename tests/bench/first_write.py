"""From readable at the metadata service to the first byte that the training writes of its checkpoint.

    python -m tests.bench.first_write [aws|gcp|azure ...] [--waves 10] [--machines 20]

Run from the repository's root. Each machine is the packed node agent as a process of its own, with the recommended
polling, and under it a training with steps of 20 ms that uses the helper; each is told once, at a random moment of its
polls. The metadata service and the coordinator are other servers of this machine.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.checkpoint import PROGRAM, STEP_SECONDS, TOKEN
from tests.bench.notices import ANNOUNCE
from tests.support.agents import agents
from tests.support.coordinator import Coordinator
from tests.support.metadata_service import MetadataService

WAVES, MACHINES = 10, 20
HEARTBEAT_SECONDS, LONGEST_S, POLL_S = 10.0, 60.0, 0.05


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="How soon a training writes after its machine could know.")
    parser.add_argument("dialects", nargs="*", default=list(ANNOUNCE), metavar="aws|gcp|azure")
    parser.add_argument("--waves", type=int, default=WAVES)
    parser.add_argument("--machines", type=int, default=MACHINES, help="of a wave")
    asked = parser.parse_args(arguments)
    for dialect in asked.dialects:
        dice = random.Random(dialect)
        waits = [seconds for _ in range(asked.waves) for seconds in _wave(dialect, asked.machines, dice)]
        cuts = statistics.quantiles(waits, n=100)
        print(
            f"{dialect}: {len(waits)} notices, readable to first write: median {statistics.median(waits):.2f} s, "
            f"p90 {cuts[89]:.2f} s, p99 {cuts[98]:.2f} s, slowest {max(waits):.2f} s, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def _wave(dialect: str, machines: int, dice: random.Random) -> list[float]:
    announce, within = ANNOUNCE[dialect]
    told: dict[int, float] = {}
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        service = stack.enter_context(MetadataService().running())
        coordinator = stack.enter_context(Coordinator(machines, TOKEN).running())
        served = {}
        for rank in range(machines):
            url, served[rank] = service.add(f"{dialect}-{rank}")
            words = [sys.executable, folder / "program.py", folder / f"run-{rank}", _writes(folder, rank), STEP_SECONDS]
            stack.enter_context(
                agents(
                    folder / f"machine-{rank}",
                    coordinator,
                    "exec " + shlex.join(map(str, words)),
                    only=[rank],
                    heartbeat_seconds=HEARTBEAT_SECONDS,
                    metadata=dialect,
                    metadata_url=url,
                )
            )
        _wait(lambda: all(list((folder / f"machine-{r}").glob("**/progress.json")) for r in served))

        def tell(rank: int) -> None:
            told[rank] = time.monotonic()
            announce(served[rank])

        for rank in served:
            timer = threading.Timer(dice.uniform(0.0, within), tell, (rank,))
            timer.start()
            stack.callback(timer.cancel)
        _wait(lambda: all(_writes(folder, rank).exists() for rank in served))
        return [float(_writes(folder, rank).read_text().split()[0]) - told[rank] for rank in served]


def _writes(folder: Path, rank: int) -> Path:
    return folder / f"writes-{rank}"


def _wait(what: object) -> None:
    assert callable(what)
    limit = time.monotonic() + LONGEST_S
    while not what():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(sys.argv[1:])
