"""Idle sandbox nodes made and released: through the runner, and by the plain engine on the same directory.

    python -m tests.bench.terraform_nodes [--nodes 1000] [--rounds 1] [--engine PATH]

"Plain" is ``init``, ``apply -auto-approve`` and ``destroy -auto-approve`` as one would type them, output thrown away;
the runner plans into a file, applies that, reads every event and the outputs. Both with the same parallelism, in turns,
each going first every other round. Seconds of the processor are what the engine, its children and (ours) this process
used: they say more than those of the clock when the machine has other work.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from terraform.engine import Engine, find_engine
from terraform.render import parse_nodes
from terraform.runner import CommandLimits, Runner
from terraform.workdir import CLI_CONFIG, prepare
from tests.support.gangs import sandbox

PARALLELISM = 64


@dataclass(frozen=True)
class Took:
    """Seconds of one round of one way: of the clock, and of the processor."""

    make: float
    release: float
    processor: float

    @property
    def both(self) -> float:
        return self.make + self.release


def main() -> None:
    parser = argparse.ArgumentParser(description="How long Terraform and the runner take for many idle nodes.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1, help="the median of so many is shown, with the extremes")
    parser.add_argument("--engine", help="path of terraform or tofu; else the embedded one")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        for line in figures(Path(folder), asked.nodes, asked.rounds, asked.engine):
            print(line, flush=True)


def figures(folder: Path, count: int = 1000, rounds: int = 1, engine: str | None = None) -> Iterator[str]:
    """Lines with the seconds of both ways and their ratios; the first before anything is measured."""
    found = find_engine(engine, "")
    yield f"{count:,} IDLE SANDBOX NODES (parallelism {PARALLELISM}, {rounds} rounds, {found})"
    ways = {"plain engine": _plain, "through the runner": _ours}
    took: dict[str, list[Took]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            run = folder / "run"
            shutil.rmtree(run, ignore_errors=True)
            prepare(run, sandbox("bench-1", count))
            took[name].append(ways[name](run, found, count))
    yield f"  {'':22}{'make':>20}{'release':>20}{'both':>20}{'processor':>20}"
    for name, rounds_of in took.items():
        columns = [[getattr(one, what) for one in rounds_of] for what in ("make", "release", "both", "processor")]
        yield f"  {name:22}{''.join(f'{_shown(column):>20}' for column in columns)}"
    plain, ours = took["plain engine"], took["through the runner"]
    clock = [mine.both / theirs.both for mine, theirs in zip(ours, plain, strict=True)]
    processor = [mine.processor / theirs.processor for mine, theirs in zip(ours, plain, strict=True)]
    yield f"  ratio, round by round: clock {_shown(clock, 2)}, processor {_shown(processor, 2)}"


def _shown(values: Sequence[float], digits: int = 1) -> str:
    median = f"{statistics.median(values):.{digits}f}"
    return median if len(values) == 1 else f"{median} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def _ours(run: Path, engine: Engine, count: int) -> Took:
    limits = CommandLimits(preview_s=3600, apply_s=3600, destroy_s=3600)
    runner = Runner(engine, {"PATH": os.environ["PATH"]}, limits, PARALLELISM)

    def make() -> None:
        applied = runner.apply(run, lambda event: None, preview=runner.preview(run))
        assert len(parse_nodes(applied.outputs)) == count

    return _timed(make, lambda: runner.destroy(run, lambda event: None))


def _plain(run: Path, engine: Engine, count: int) -> Took:
    def command(*words: str) -> None:
        environment = {"PATH": os.environ["PATH"], "TF_CLI_CONFIG_FILE": str(run / CLI_CONFIG)}
        subprocess.run([engine.path, *words], cwd=run, env=environment, stdout=subprocess.DEVNULL, check=True)

    def make() -> None:
        command("init", "-input=false")
        command("apply", "-auto-approve", "-input=false", f"-parallelism={PARALLELISM}")

    return _timed(make, lambda: command("destroy", "-auto-approve", "-input=false", f"-parallelism={PARALLELISM}"))


def _timed(make: Callable[[], object], release: Callable[[], object]) -> Took:
    before, began = _processor(), time.perf_counter()
    make()
    made = time.perf_counter()
    release()
    return Took(made - began, time.perf_counter() - made, _processor() - before)


def _processor() -> float:
    """Seconds of the processor, of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    main()
