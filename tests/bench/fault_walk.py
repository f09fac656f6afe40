"""Both walks: `python -m tests.bench.fault_walk [--engine PATH] [WORD...]` walks the steps whose stage or fault has
such a word, all of them by default.

Each step of the first applies (or destroys) a gang of three on the sandbox, brings a fault about at one stage, runs one
more command and then asks whether everything agrees. Each step of the second kills the watcher on a gang's way
elsewhere. The tables are printed; exit code 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support import fault_walk, recovery_walk
from tests.support.walks import AT_ONCE


def main() -> int:
    parser = argparse.ArgumentParser(
        description="What is left of an apply or a migration that something comes between."
    )
    parser.add_argument("words", nargs="*", help="only steps whose stage or fault has one of these")
    parser.add_argument("--engine", type=Path, help="path of terraform or tofu; else the embedded one")
    asked = parser.parse_args()
    faults = {f"{s.stage.name}, {s.fault.name}, {s.follow_up}": s for s in (*fault_walk.kills(), *fault_walk.others())}
    moves = {stage.name: stage for stage in recovery_walk.STAGES}
    parts: list[Any] = [
        (lambda steps, at: fault_walk.walk(steps, at, asked.engine), fault_walk.table, faults),
        (recovery_walk.walk, recovery_walk.table, moves),
    ]
    began, wrong = time.monotonic(), {}
    with TemporaryDirectory(prefix="stepfare-walk-") as folder:
        for number, (walk, table, named) in enumerate(parts):
            steps = {name: s for name, s in named.items() if not asked.words or any(w in name for w in asked.words)}
            if steps:
                verdicts = walk(list(steps.values()), Path(folder) / str(number))
                print(table(verdicts))
                wrong.update({name: v.wrong for name, v in zip(steps, verdicts, strict=True) if v.wrong})
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    print(
        f"{time.monotonic() - began:.0f} s, {AT_ONCE} at a time, {busy:.0f} s of processor time in what was waited for"
    )
    for name, what in wrong.items():
        print(f"\n{name}:", *what)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
