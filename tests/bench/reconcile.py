"""What matching a month costs: a million rows of bills on two hundred thousand metered stretches, in a process of its
own, so that its memory is its own.

    python -m tests.bench.reconcile [--rows 1000000] [--memory 1000MB]
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import time
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from router.showback.facts import COLUMNS
from router.showback.reconcile.matching import reconcile

_HOURS = 720
_KIB_A_MIB = 1024
# A machine: an hour a bill's row, seven hours and a bit a stretch. Of a hundred machines 95 have their resource on the
# bill, 4 their job alone, and of 1 nothing but its type.
_STRETCH_US = 3600 * 10**6 * _HOURS // 144
_METERED = f"""
SELECT 'metered' AS source, 'ledger' AS origin, i AS "row", 'metered ' || i AS key, 'Estimated' AS state,
       make_timestamptz(1793491200000000 + (i % 144) * {_STRETCH_US}) AS "start",
       make_timestamptz(1793491200000000 + (i % 144 + 1) * {_STRETCH_US}) AS "end",
       'team-' || (i // 144 % 7) AS team, 'job-' || (i // 144 % 301) AS job, 'attempt-' || (i // 144) AS attempt,
       CASE i % 4 WHEN 0 THEN 'startup' WHEN 3 THEN 'restart_lost_work' ELSE 'work' END AS "use",
       'i-' || (i // 144) AS resource, 'type-' || (i // 144 % 9) AS instance_type, 5::DECIMAL(38, 24) AS quantity,
       12.345678912::DECIMAL(38, 24) AS billed, 12.345678912::DECIMAL(38, 24) AS effective,
       20::DECIMAL(38, 24) AS on_demand
FROM range({{stretches}}) t(i)
"""
_BILLED = """
SELECT 'billed' AS source, 'bill-' || (i % 3) AS origin, i AS "row", NULL AS key, 'Invoiced' AS state,
       make_timestamptz(1793491200000000 + (i % 720) * 3600000000) AS "start",
       make_timestamptz(1793491200000000 + (i % 720 + 1) * 3600000000) AS "end",
       NULL AS team, CASE WHEN i // 720 % 100 IN (1, 2, 3, 4) THEN 'job-' || (i // 720 % 301) END AS job,
       NULL AS attempt,
       NULL AS "use",
       CASE WHEN i // 720 % 100 > 4 THEN 'arn:aws:ec2:us-east-1:1:instance/i-' || (i // 720) END AS resource,
       'type-' || (i // 720 % 9) AS instance_type, 1::DECIMAL(38, 24) AS quantity,
       2.4691357824::DECIMAL(38, 24) AS billed, 2.4691357824::DECIMAL(38, 24) AS effective, NULL AS on_demand
FROM range({rows}) t(i)
"""
_SAME = {
    "category": "'Usage'", "month": "'2026-11'", "what": "'machine'", "cloud": "'aws'", "region": "'us-east-1'",
    "market": "'spot'", "unit": "'Hours'", "hours": "quantity", "currency": "'USD'", "unpriced": "false",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of matching bills with metered time.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of bills")
    parser.add_argument("--memory", default="1000MB", help="what DuckDB may have")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        path = Path(folder) / "facts.parquet"
        made = multiprocessing.get_context("spawn")
        for target, arguments in ((write, (path, asked.rows)), (measure, (path, asked.memory))):
            process = made.Process(target=target, args=arguments)
            process.start()
            process.join()


def write(path: Path, rows: int) -> None:
    given = {
        "source",
        "origin",
        "row",
        "key",
        "state",
        "start",
        "end",
        "team",
        "job",
        "attempt",
        "use",
        "resource",
        "instance_type",
        "quantity",
        "billed",
        "effective",
        "on_demand",
    }
    columns = ", ".join(
        f'"{name}"' if name in given else f'{_SAME.get(name, "NULL")} AS "{name}"' for name in COLUMNS.names
    )
    with duckdb.connect() as connection:
        facts = f"{_METERED.format(stretches=rows // 720 * 144)} UNION ALL {_BILLED.format(rows=rows)}"
        connection.execute(f"COPY (SELECT {columns} FROM ({facts})) TO '{path}' (FORMAT parquet)")


def measure(path: Path, memory: str) -> None:
    """Prints seconds, MiB, and whether the sums are the bill's."""
    with duckdb.connect(config={"memory_limit": memory, "threads": 2}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE VIEW facts AS SELECT * FROM read_parquet('{path}')")
        began = time.perf_counter()
        reconcile(connection, "facts")
        seconds = time.perf_counter() - began
        print(f"matched in {seconds:.1f} s, {_most_kib() / _KIB_A_MIB:,.0f} MiB at most", flush=True)
        for level, count in connection.execute(
            "SELECT level, count(*) FROM rc_level GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall():
            print(f"  {level:10}{count:12,}")
        sums = [_sum(connection, name) for name in ("facts", "actual")]
        print(f"  the bill's sum {sums[0]}, after it {sums[1]}: {'the same' if sums[0] == sums[1] else 'WRONG'}")


def _sum(connection: duckdb.DuckDBPyConnection, table: str) -> Decimal:
    found = connection.execute(f"SELECT sum(billed) FROM {table} WHERE source = 'billed'").fetchone()
    assert found is not None
    return Decimal(found[0])


def _most_kib() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    main()
