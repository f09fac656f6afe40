"""How price history does when there is much of it. Every figure is measured in this run.

    python tests/bench/price_history.py [--rows 50000000] [--folder DIR]

Rows over twelve months in 5,000 series, every fourth with stock beside the price, twenty parts a month in the order
of time as refreshes leave them; then merged. Made by DuckDB from row numbers and hashes: the same on every machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from pricing.history import PricePoint
from pricing.money import UsdPerHour
from pricing.places import Market
from router.prices import history
from router.prices.history import write_part
from router.prices.history_sql import connect, lock_for_writing, to_microseconds

T = TypeVar("T")
SERIES = 5_000
PARTS_A_MONTH = 20
NEW_POINTS = 10_000
MONTHS = [datetime(2025 + (10 + m) // 12, (10 + m) % 12 + 1, 1, tzinfo=UTC) for m in range(13)]
SOURCE = "made up"
# One series, as the rows below name it.
ONE = history.Selection(clouds=("gcp",), regions=("region-13",), instance_types=("type-7",), markets=(Market.SPOT,))


def main() -> None:
    parser = argparse.ArgumentParser(description="How price history does when there is much of it.")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows stored in all")
    parser.add_argument("--folder", type=Path, help="where to build it and leave it; default: a temporary folder")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="stepfare-bench-"))
    try:
        for line in figures(folder, asked.rows):
            print(line, flush=True)
    finally:
        if asked.folder is None:
            shutil.rmtree(folder)


def figures(folder: Path, rows: int) -> Iterator[str]:
    """Builds ``rows`` in the (empty) folder, line by line what it took."""
    yield f"PRICE HISTORY ({rows:,} rows, {SERIES:,} series, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})"
    seconds, _ = _timed(lambda: build(folder, rows))
    yield f"  build, {PARTS_A_MONTH} parts a month        {seconds:9.2f} s {rows / seconds:14,.0f} rows/s"
    yield _query("one series, not merged", folder)
    seconds, done = _timed(lambda: history.compact(folder))
    yield f"  merge {done.parts} parts into {done.months}         {seconds:9.2f} s {rows / seconds:14,.0f} rows/s"
    there = history.summarize(folder)
    yield f"  on disk                        {there.size / 1e6:9.0f} MB {there.size / there.rows:13.2f} bytes/row"
    yield _query("one series, a year", folder)
    seconds, found = _timed(lambda: history.latest_by_region(folder))
    yield f"  last moment of each region     {seconds:9.2f} s {len(found):14,} regions"
    given = list(new_points())
    for what in (f"append {NEW_POINTS:,} new", f"append {NEW_POINTS:,} again"):
        seconds, added = _timed(lambda: history.append(folder, given))
        yield f"  {what:30} {seconds:9.2f} s {added.written:14,} written"
    yield f"  peak memory of this process    {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:9.0f} MiB"


def build(folder: Path, rows: int) -> None:
    """Twelve months of ``rows`` in all, each as so many parts."""
    each = rows // (len(MONTHS) - 1) // PARTS_A_MONTH
    for month, after in pairwise(MONTHS):
        step = (after - month) / PARTS_A_MONTH
        for number in range(PARTS_A_MONTH):
            begin = month + number * step
            with lock_for_writing(folder), connect() as connection:
                made = _made_up(to_microseconds(begin), step // timedelta(microseconds=1), each, number)
                write_part(folder, f"{month:%Y-%m}", number + 1, connection, made)


def _made_up(begin: int, length: int, rows: int, number: int) -> str:
    """A query: ``rows`` points spread over ``length`` microseconds; prices wander about the base of their series."""
    return f"""
        SELECT make_timestamptz({begin} + (i * {length / max(rows, 1)})::BIGINT) AS "at",
            ['aws', 'azure', 'gcp'][1 + s % 3] AS cloud, 'region-' || (s // 100) AS region,
            'region-' || (s // 100) || ['a', 'b', 'c', 'd'][1 + s % 4] AS zone,
            'type-' || (s % 50) AS instance_type, CASE WHEN s % 100 < 50 THEN 'spot' ELSE 'on_demand' END AS market,
            (100000 * (5000 + 37 * s % 90000 + hash(i // 50000, s) % 900 + hash(i, s) % 40))::BIGINT
                AS usd_nanos_per_hour,
            CASE WHEN s % 4 = 0 THEN hash(i, s, 1) % 17 / 16 END::DOUBLE AS available, NULL::DOUBLE AS score,
            '{SOURCE}' AS source, {number + 1}::BIGINT AS batch
        FROM (SELECT i, (hash(i, {begin}) % {SERIES})::BIGINT AS s FROM range({rows}) AS r(i))
        ORDER BY "at" """


def new_points() -> Iterator[PricePoint]:
    """Of two series a point a minute at the end of the last month, as the next refresh brings them."""
    for i in range(NEW_POINTS // 2):
        at = MONTHS[-1] - timedelta(minutes=i, microseconds=1)
        for region in ("region-13", "region-14"):
            price = UsdPerHour(1_000_000_000 + 100_000 * (i % 97))
            zone = f"{region}a"
            yield PricePoint("gcp", region, zone, "type-7", Market.SPOT, at, SOURCE, price)


def _query(name: str, folder: Path) -> str:
    seconds, frame = _timed(lambda: history.read_series(folder, ONE, MONTHS[0], MONTHS[-1]))
    return f"  {name:30} {seconds:9.2f} s {len(frame):14,} rows"


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


if __name__ == "__main__":
    main()
