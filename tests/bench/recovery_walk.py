"""The walk through a migration: kills the watcher at each step of a gang's way elsewhere.

    python -m tests.bench.recovery_walk [WORD ...]

Without words it walks all steps, else those that have one of them. The table is printed; exit code 1 when something is
wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.recovery_walk import STAGES, table, walk


def main() -> int:
    parser = argparse.ArgumentParser(description="What becomes of a migration whose watcher is killed.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only steps that have one of these")
    words = parser.parse_args().words
    stages = [stage for stage in STAGES if not words or any(word in stage.name for word in words)]
    began = time.monotonic()
    with TemporaryDirectory(prefix="stepfare-walk-") as folder:
        verdicts = walk(stages, Path(folder))
    print(table(verdicts))
    print(f"{time.monotonic() - began:.0f} s")
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    for verdict in wrong:
        print(f"\n{verdict.stage.name}:", *verdict.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
