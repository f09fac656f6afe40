"""Idle sandbox nodes made and released: through the runner, and by the plain engine on the same directory.

    python -m tests.bench.terraform_nodes [--nodes 1000] [--rounds 1] [--engine PATH]

"Plain" is ``apply -auto-approve`` and ``destroy -auto-approve`` as one would type them, output thrown away; the runner
plans into a file, applies that, reads every event and the outputs. Both with the same parallelism, in turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from terraform.engine import Engine, find_engine
from terraform.outputs import made_nodes
from terraform.runner import Limits, Runner
from terraform.workdir import CLI_CONFIG, prepare
from tests.support.gangs import sandbox

PARALLELISM = 64


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="How long Terraform and the runner take for many idle nodes.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1, help="the median of so many is shown")
    parser.add_argument("--engine", help="path of terraform or tofu; else the embedded one")
    asked = parser.parse_args()
    engine = find_engine(asked.engine, "")
    print(f"{asked.nodes} idle sandbox nodes, parallelism {PARALLELISM}, {engine}")
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        for line in figures(Path(folder), engine, asked.nodes, asked.rounds):
            print(line, flush=True)


def figures(folder: Path, engine: Engine, count: int, rounds: int) -> list[str]:
    """Seconds of both ways, and their ratio."""
    ours: list[tuple[float, float]] = []
    plain: list[tuple[float, float]] = []
    for _ in range(rounds):
        plain.append(_round(folder / "run", count, lambda run: _plain(run, engine)))
        ours.append(_round(folder / "run", count, lambda run: _ours(run, engine, count)))
    lines = [f"  {'':22}{'make':>9}{'release':>9}{'both':>9}"]
    for name, took in (("plain engine", plain), ("through the runner", ours)):
        made, released = (statistics.median(column) for column in zip(*took, strict=True))
        lines.append(f"  {name:22}{made:8.2f}s{released:8.2f}s{made + released:8.2f}s")
    ratio = statistics.median(sum(row) for row in ours) / statistics.median(sum(row) for row in plain)
    return [*lines, f"  ratio {ratio:.2f}"]


def _round(run: Path, count: int, way: Callable[[Path], tuple[float, float]]) -> tuple[float, float]:
    shutil.rmtree(run, ignore_errors=True)
    prepare(run, sandbox("bench-1", count))
    return way(run)


def _ours(run: Path, engine: Engine, count: int) -> tuple[float, float]:
    limits = Limits(preview_s=3600, apply_s=3600, destroy_s=3600)
    runner = Runner(engine, {"PATH": os.environ["PATH"]}, limits, PARALLELISM)
    began = time.perf_counter()
    applied = runner.apply(run, lambda event: None, preview=runner.preview(run))
    made = time.perf_counter()
    assert len(made_nodes(applied.outputs)) == count
    between = time.perf_counter()
    runner.destroy(run, lambda event: None)
    return made - began, time.perf_counter() - between


def _plain(run: Path, engine: Engine) -> tuple[float, float]:
    def command(*words: str) -> None:
        environment = {"PATH": os.environ["PATH"], "TF_CLI_CONFIG_FILE": str(run / CLI_CONFIG)}
        subprocess.run([engine.path, *words], cwd=run, env=environment, stdout=subprocess.DEVNULL, check=True)

    began = time.perf_counter()
    command("init", "-input=false")
    command("apply", "-auto-approve", "-input=false", f"-parallelism={PARALLELISM}")
    made = time.perf_counter()
    command("destroy", "-auto-approve", "-input=false", f"-parallelism={PARALLELISM}")
    return made - began, time.perf_counter() - made


if __name__ == "__main__":
    main()
