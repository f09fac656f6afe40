"""A job for a gang with Ray: a rank of the training on each of two Ray nodes. ``ray_job.py TRAINER OPTIONS...``; ends
with 0 when both ranks do."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

RANKS = 2


@ray.remote(num_cpus=1, max_retries=0)  # type: ignore[untyped-decorator]
def train(rank: int, port: int, options: list[str]) -> tuple[str, int, str]:
    """(Ray's id of the node, exit code, output)."""
    contract = {"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = {**os.environ, **{name: str(value) for name, value in contract.items()}}
    words = [sys.executable, *options]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return ray.get_runtime_context().get_node_id(), done.returncode, done.stdout


def _free_port() -> int:
    """A port that no outgoing connection is given before rank 0 listens."""
    for port in random.sample(range(20_000, 32_768), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def main(options: list[str]) -> int:
    ray.init(address=os.environ["RAY_ADDRESS"], logging_level="ERROR", log_to_driver=False)
    group = placement_group([{"CPU": 1}] * RANKS, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=60)
    port = _free_port()
    ends: list[Any] = [
        train.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank)).remote(rank, port, options)
        for rank in range(RANKS)
    ]
    ended: list[tuple[str, int, str]] = ray.get(ends, timeout=120)
    for rank, (node, code, text) in enumerate(ended):
        print(f"node {node} rank {rank} code {code}\n{text}", flush=True)
    return max(code for _, code, _ in ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
