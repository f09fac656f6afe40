"""What a gang of 1,000 nodes costs the coordinator: meeting, heartbeats, output, ends.

    python -m tests.bench.coordinator [--nodes 1000]

Run from the repository's root. The nodes are threads of another process on this machine, with the agent's own client.
They send as fast as they are answered, so a second here stands for more than one of a gang's life. "busy" is processor
time of the coordinator's process; a state of SQLite on the disk of the temporary folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from router.agent.calls import CoordinatorClient
from tests.support.coordinations import ATTEMPT, TOKEN, Scene, scene

HEARTBEAT_SECONDS = 10.0
THREADS = 16
TEXT = "step 1200 loss 2.7183 tokens/s 181234\n" * 27
ROUNDS = (
    ("hello", "hello of every node, the last one meets"),
    ("heartbeat", "first heartbeat: all become running"),
    ("heartbeat", "a heartbeat that says nothing new"),
    ("heartbeat", "the same again"),
    ("logs", f"{len(TEXT):,} bytes of output of every node"),
    ("ended", "the end of every node"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What a large gang costs the coordinator.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--send", nargs=2, metavar=("URL", "KIND"), help="be the nodes, for one round (bodies on stdin)"
    )
    options = parser.parse_args(arguments)
    if options.send:
        _send(*options.send)
        return
    with TemporaryDirectory() as folder, scene(Path(folder), options.nodes, fresh_seconds=1.0) as gang, gang.serving():
        for kind, what in ROUNDS:
            _round(gang, kind, what)
        assert gang.attempt.result == "finished"


def _round(gang: Scene, kind: str, what: str) -> None:
    more = {"text": TEXT, "bytes": len(TEXT)} if kind == "logs" else {}
    bodies = json.dumps([gang.body(rank, kind, **more) for rank in range(gang.nodes)])
    command = [sys.executable, "-m", "tests.bench.coordinator", "--send", gang.url, kind]
    busy = time.process_time()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, input=bodies, text=True)
    busy = time.process_time() - busy
    seconds, *waits = map(float, done.stdout.split())
    print(
        f"{what}: {gang.nodes / seconds:,.0f} a second, answer in {statistics.median(waits) * 1e3:.0f} ms, slowest "
        f"{max(waits) * 1e3:.0f} ms; busy {busy / gang.nodes * 1e3:.2f} ms each, "
        f"{busy / HEARTBEAT_SECONDS:.0%} of a core if all do so every {HEARTBEAT_SECONDS:g} s"
    )


def _send(url: str, kind: str) -> None:
    """Prints the seconds of the whole round, then of each answer."""
    bodies = json.load(sys.stdin)

    def one(rank: int) -> float:
        node = CoordinatorClient(url, attempt=ATTEMPT, rank=rank, token=TOKEN, ca_file=None, seconds=30)
        began = time.perf_counter()
        node.post(kind, bodies[rank])
        return time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        waits = list(pool.map(one, range(len(bodies))))
    print(time.perf_counter() - began, *waits)


if __name__ == "__main__":
    main()
