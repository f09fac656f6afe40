"""How fast the ledger is: rows appended in batches of 1,000, read in order, verified, backed up; in SQLite and in
PostgreSQL.

    python -m tests.bench.ledger [--rows 100000] [--sqlite-only]

The disk is the one that holds temporary files. PostgreSQL is started for this, as its tests do, but with `fsync` on;
where its binaries cannot be had it says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from router.ledger.entry import LedgerEntry, MachineUse
from router.state.store import StateStore
from tests.support.postgres_here import postgres_here
from tests.support.state_values import HOUR, NOW, entry

BATCH = 1000
# What the project asks for (issue 7), in rows a second.
APPEND, READ = 5_000, 100_000
ROWS = 100_000


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="How fast the ledger is.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--sqlite-only", action="store_true")
    asked = parser.parse_args(arguments)
    print(f"LEDGER ({asked.rows:,} rows, appended {BATCH:,} at a time; load {os.getloadavg()[0]:.1f})")
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        for name, url in _places(Path(folder), sqlite_only=asked.sqlite_only):
            for line in figures(name, url, Path(folder), asked.rows):
                print(line, flush=True)


def _places(folder: Path, *, sqlite_only: bool) -> Iterator[tuple[str, str]]:
    yield "SQLite", f"sqlite:///{folder}/state.db"
    if sqlite_only:
        return
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_here(durable=True))
        except (OSError, AssertionError) as error:
            print(f"  PostgreSQL: not measured: {error}")
            return
        yield "PostgreSQL", server.url_of_new_schema()


def figures(name: str, url: str, folder: Path, rows: int) -> Iterator[str]:
    """What a ledger of so many rows takes at that place."""
    batches = [_batch(first) for first in range(0, rows, BATCH)]
    with StateStore.open(url, now=NOW) as store:
        took, slowest = 0.0, 0.0
        for batch in batches:
            began = time.perf_counter()
            store.ledger.append(batch, after=int(batch[0].key))
            lasted = time.perf_counter() - began
            took, slowest = took + lasted, max(slowest, lasted)
        yield _line(name, "append", rows, took, APPEND, f", slowest batch {slowest * 1000:.0f} ms")
        began = time.perf_counter()
        read = sum(len(batch) for batch in store.ledger.batches())
        assert read == rows
        yield _line(name, "read in batches", rows, time.perf_counter() - began, READ)
        began = time.perf_counter()
        assert store.ledger.verify().problems == ()
        yield _line(name, "verify", rows, time.perf_counter() - began)
        file = folder / f"{name}.gz"
        began = time.perf_counter()
        store.backups.write(file)
        size = file.stat().st_size
        yield _line(name, "back up", rows, time.perf_counter() - began, more=f", {size / rows:.0f} bytes a row")


def _batch(first: int) -> list[LedgerEntry]:
    uses = tuple(MachineUse)
    return [
        entry(
            str(number),
            rank=number % 64,
            attempt=f"a{number // 64}",
            job=f"job-{number % 997}",
            use=uses[number % 5],
            start=NOW + timedelta(seconds=number),
            end=NOW + timedelta(seconds=number) + HOUR,
            steps=number,
        )
        for number in range(first, first + BATCH)
    ]


def _line(name: str, what: str, rows: int, seconds: float, limit: int | None = None, more: str = "") -> str:
    aim = "" if limit is None else f" (wanted: {limit:,} or more)"
    return f"  {name:11}{what:18}{rows / seconds:10,.0f} rows/s{aim}{more}"


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
