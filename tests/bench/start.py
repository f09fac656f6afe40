"""Processor time of quick commands, with the bytecode of modules cached: mostly their imports.

    python -m tests.bench.start [--runs 21]

Run from the repository's root. `status` shows the demo's gangs, of which one runs. The imports of the libraries that
it cannot do without are measured beside it, in turn, so that other work on the machine slows all alike.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from router.app.state_restoration import write_demo_home

COMMAND = "from router.cli.main import main; main()"
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "import typer, pydantic, yaml, sqlalchemy": (
        "-c",
        "import typer, pydantic.types, yaml, sqlalchemy.dialects.sqlite",
    ),
    "stepfare --help": ("-c", COMMAND, "--help"),
    "stepfare status": ("-c", COMMAND, "status"),
}
RUNS = 21


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="Processor time of quick commands.")
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args(arguments).runs
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with TemporaryDirectory() as folder:
        home, cache = Path(folder, "home"), Path(folder, "bytecode")
        write_demo_home(home)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"STEPFARE_HOME": str(home), "PYTHONPYCACHEPREFIX": str(cache)}
        for number in range(runs + 1):
            for name, words in PROGRAMS.items():
                taken = processor_seconds(words, environment)
                if number:  # The first run writes the bytecode.
                    seconds[name].append(taken)
    print("| processor s | median | least | most |\n| --- | --- | --- | --- |")
    for name, taken_by in seconds.items():
        print(f"| `{name}` | {statistics.median(taken_by):.2f} | {min(taken_by):.2f} | {max(taken_by):.2f} |")


def processor_seconds(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return user and system time of an interpreter that is given these words. CalledProcessError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
