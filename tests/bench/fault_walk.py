"""The fault walk: `python -m tests.bench.fault_walk [--engine PATH] [WORD...]` walks the steps whose stage or fault has
such a word, all of them by default.

Each step applies (or destroys) a gang of three on the sandbox, brings a fault about at one stage, runs one more command
and then asks whether everything agrees. The table is printed; exit code 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.fault_steps import kills, others
from tests.support.fault_walk import Step, Verdict, table, take, templates
from tests.support.seen_machines import SeenMachines

# They mostly wait.
AT_ONCE = 4


def walk(steps: Sequence[Step], folder: Path, engine: Path | None = None) -> list[Verdict]:
    """All of them, some at a time, each in a site of its own below the folder; ``engine`` instead of the embedded."""
    made = templates(folder, engine)
    with SeenMachines() as seen_machines, ThreadPoolExecutor(AT_ONCE) as pool:
        return list(
            pool.map(
                lambda numbered: take(
                    numbered[1], made[numbered[1].stage.job], folder / str(numbered[0]), seen_machines
                ),
                enumerate(steps),
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="What is left of an apply that something comes between.")
    parser.add_argument("words", nargs="*", help="only steps whose stage or fault has one of these")
    parser.add_argument("--engine", type=Path, help="path of terraform or tofu; else the embedded one")
    asked = parser.parse_args()
    words = asked.words
    steps = [s for s in (*kills(), *others()) if not words or any(w in f"{s.stage.name} {s.fault.name}" for w in words)]
    began = time.monotonic()
    with TemporaryDirectory(prefix="stepfare-walk-") as folder:
        verdicts = walk(steps, Path(folder), asked.engine)
    print(table(verdicts))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    print(
        f"{time.monotonic() - began:.0f} s, {AT_ONCE} at a time, {busy:.0f} s of processor time in what was waited for"
    )
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    for verdict in wrong:
        print(f"\n{verdict.step.stage.name}, {verdict.step.fault.name}, {verdict.step.follow_up}:", *verdict.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
