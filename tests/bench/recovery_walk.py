"""The walk through a migration: `python -m tests.bench.recovery_walk` kills the watcher at each step of a gang's way
elsewhere. The table is printed; exit code 1 when something is wrong."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.recovery_walk import STAGES, table, walk


def main() -> int:
    """Prints the table and what is wrong."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="stepfare-walk-") as folder:
        verdicts = walk(STAGES, Path(folder))
    print(table(verdicts))
    print(f"{time.monotonic() - began:.0f} s")
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    for verdict in wrong:
        print(f"\n{verdict.stage.name}:", *verdict.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
