"""The trainer of the demo as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from router.agent.rendezvous import find_free_port
from tests.support.repository import ROOT

TRAINER = ROOT / "router" / "demo" / "train.py"
Trainer = subprocess.Popen[str]


def start(*options: object, rank: int = 0, ranks: int = 1, port: int = 0, attempt: str = "a-1") -> Trainer:
    """One rank; standard output and standard error in one pipe."""
    contract = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": str(rank), "NNODES": str(ranks)}
    return subprocess.Popen(
        [sys.executable, str(TRAINER), *map(str, options)],
        env={"PATH": os.environ["PATH"], **contract, "STEPFARE_ATTEMPT": attempt},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    )


@contextmanager
def gang(ranks: int, *options: object) -> Iterator[Sequence[Trainer]]:
    """All ranks of one training; what still runs at the end of the block is killed."""
    port = find_free_port()
    started = [start(*options, rank=rank, ranks=ranks, port=port) for rank in range(ranks)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def output(process: Trainer, seconds: float = 60) -> str:
    """All that it said, once it has ended."""
    return process.communicate(timeout=seconds)[0]


def train(*options: object, ranks: int = 1) -> str:
    """What rank 0 said; every rank has to end with 0."""
    with gang(ranks, *options) as started:
        said = [output(process) for process in started]
        assert [process.returncode for process in started] == [0] * ranks, said
    return said[0]


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl, to which a process may be adding one."""
    whole = (folder / "metrics.jsonl").read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


def losses(folder: Path) -> dict[int, float]:
    """Loss by step. A step that was done again must have had the same loss, to the last bit."""
    found: dict[int, float] = {}
    for line in metrics(folder):
        assert found.setdefault(line["step"], line["loss"]) == line["loss"], line
    return found


def checkpoints(folder: Path) -> list[str]:
    """The names of the checkpoints, the oldest first."""
    return sorted(path.name for path in folder.glob("step-*.ckpt"))
