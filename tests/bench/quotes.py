"""Quotes as commands: one job over the whole embedded book, and two hundred.

    python -m tests.bench.quotes [--jobs 200] [--repetitions 5]

The jobs are those of the example night, again and again under other names; what has no deadline gets two days. Wall
time is of this machine as it is loaded now, beside it the processor time of the command and its children.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.repository import ROOT

NOW = "2026-11-21T18:00:00Z"
NIGHTLY = ROOT / "examples" / "nightly"
COMMAND = (sys.executable, "-c", "from router.cli.main import main; main()")
_ONE = ("bert-large-pretraining", "llama3-8b-domain", "mpt-7b-pretrain")
_NAME = re.compile(r"^name: (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Took:
    wall: float
    processor: float


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="How long quotes take.")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=5, help="runs of a quote, of which the median is told")
    asked = parser.parse_args(arguments)
    for line in figures(asked.jobs, asked.repetitions):
        print(line, flush=True)


def figures(jobs: int, repetitions: int) -> Iterator[str]:
    yield f"QUOTES (whole command; {len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f})"
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        for name in _ONE:
            took = [_timed(Path(folder), [str(NIGHTLY / f"{name}.yaml"), "-o", "line"]) for _ in range(repetitions)]
            wall, spent = (statistics.median(getattr(t, k) for t in took) for k in ("wall", "processor"))
            yield f"  {name:28}{wall:8.2f} s {spent:8.2f} s of a processor"
        count = _many(Path(folder) / "jobs", jobs)
        many = _timed(Path(folder), [str(Path(folder) / "jobs"), "-o", "table"])
        each = many.wall / count
        yield (
            f"  {count:,} jobs {'':18}{many.wall:8.2f} s {many.processor:8.2f} s of a processor   ({each:.2f} s a job)"
        )


def _many(folder: Path, count: int) -> int:
    """Files with as many jobs or a few more; how many."""
    folder.mkdir()
    texts = [path.read_text(encoding="utf-8") for path in sorted(NIGHTLY.glob("*.yaml")) if path.name != "limits.yaml"]
    made = 0
    for i in range(count):
        if made >= count:
            break
        text = texts[i % len(texts)]
        deadline = "" if "deadline:" in text else "\ndeadline: +2d"
        text = _NAME.sub(rf"name: \1-{i}{deadline}", text)
        (folder / f"{i}.yaml").write_text(text, encoding="utf-8")
        made += len(_NAME.findall(text))
    return made


def _timed(home: Path, arguments: Sequence[str]) -> Took:
    command = [*COMMAND, "quote", *arguments, "--book", "embedded", "--now", NOW]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    known = {**os.environ, "STEPFARE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, spent)


if __name__ == "__main__":
    main(sys.argv[1:])
