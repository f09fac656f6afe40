"""``make bench``: how long planning takes, and what it rests on. Every figure is measured in this run, on this machine,
as it is loaded now.

    python -m tests.bench.run [--jobs 100] [--time-limit 60] [--only PART ...] [--small]

Run from the repository's root. Phases are the planner's own: sieve (offers to candidates), build (the program), solve
(shortlist, PuLP, HiGHS, re-solving for shadow prices), price (exact costs, alternatives, reasons).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from router.app.plan import PlanOptions, plan_request
from router.planning.planner import PlanRequest
from tests.bench import (
    agent,
    bills,
    coordinator,
    ledger,
    month_forecast,
    orders,
    price_history,
    quotes,
    reassign,
    showback,
    start,
    storm,
    terraform_nodes,
    upload,
)
from tests.bench.hundred_jobs import many_jobs, many_limits
from tests.bench.stopwatch import Timed, timed_plan
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
NIGHTLY = ROOT / "examples" / "nightly"
INSTRUCTIVE = ROOT / "examples" / "instructive"
EXAMPLES = ((NIGHTLY, NIGHTLY / "limits.yaml"), (INSTRUCTIVE, None))
COMMAND = (str(Path(sys.executable).parent / "stepfare"),)
PLANNED = (0, 3)  # all placed; some could not be placed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How long planning and making machines take.")
    parser.add_argument("--jobs", type=int, default=100, help="jobs of the large case")
    parser.add_argument("--history-rows", type=int, default=5_000_000, help="rows of price history")
    parser.add_argument("--nodes", type=int, default=1000, help="sandbox nodes made and released")
    parser.add_argument("--rounds", type=int, default=3, help="times they are, beside plain Terraform")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds, for the large case")
    parser.add_argument("--small", action="store_true", help="all else small: shows that it runs, not how fast")
    parser.add_argument("--only", nargs="+", metavar="PART", help="only these parts, by their names")
    asked = parser.parse_args(arguments)
    parts = make_parts(asked)
    unknown = sorted(set(asked.only or ()) - set(parts))
    if unknown:
        parser.error(f"no part is named {unknown[0]}; there are {', '.join(parts)}")
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    for name, part in parts.items():
        if asked.only is None or name in asked.only:
            part()
            print(flush=True)


def make_parts(asked: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name, in its order."""

    def words(*small: str) -> tuple[str, ...]:
        return small if asked.small else ()

    def history() -> None:
        with TemporaryDirectory(prefix="stepfare-bench-") as folder:
            _show_lines(price_history.figures(Path(folder), asked.history_rows))

    def nodes() -> None:
        with TemporaryDirectory(prefix="stepfare-bench-") as folder:
            _show_lines(terraform_nodes.figures(Path(folder), asked.nodes, asked.rounds))

    gangs, few = ("--gangs", "3"), ("--gangs", "10")
    return {
        "start-up": lambda: start.main(words("--runs", "1")),
        "examples": lambda: examples(((INSTRUCTIVE, None),) if asked.small else EXAMPLES),
        "many-jobs": lambda: many(asked.jobs, timedelta(seconds=asked.time_limit)),
        "reassign": lambda: _show_lines(reassign.figures(5 if asked.small else reassign.GANGS)),
        "price-history": history,
        "terraform-nodes": nodes,
        "agent": agent.main,
        "coordinator": lambda: coordinator.main(words("--nodes", "8")),
        "ledger": lambda: ledger.main(words("--rows", "2000", "--sqlite-only")),
        "orders": lambda: orders.main(words(*gangs)),
        "quotes": lambda: quotes.main(words("--jobs", "3")),
        "storm": lambda: storm.main(words(*few)),
        "upload": lambda: upload.main(1 if asked.small else 64, 1),
        "bills": lambda: bills.main(words("--megabytes", "1")),
        "showback": lambda: showback.main(words("--rows", "20000", "--new", "1000")),
        "month-forecast": lambda: month_forecast.main(words("--seeds", "0", "1", "--kinds", "fee")),
    }


def _show_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def examples(folders: Sequence[tuple[Path, Path | None]]) -> None:
    """The example folders: the whole command, then the same plan inside one process."""
    print("\nEXAMPLES (whole command; then inside: reading and planning)")
    for folder, limits in folders:
        more = ["--limits", str(limits)] if limits else []
        options = ["--book", "embedded", "--now", NOW.isoformat()]
        whole = _seconds([*COMMAND, "plan", str(folder), *options, *more], codes=PLANNED)
        began = time.perf_counter()
        request = plan_request([str(folder)], "embedded", limits, NOW, PlanOptions()).request
        reading = time.perf_counter() - began
        timed = timed_plan(request)
        print(f"{folder.relative_to(ROOT)}: {len(request.jobs)} jobs, {len(request.book.offers):,} offers")
        print(f"  whole command     {whole:8.2f} s {whole / len(request.jobs):10.3f} s a job")
        print(f"  reading, checking {reading:8.2f} s")
        _show(timed, request)


def many(count: int, time_limit: timedelta) -> None:
    """The example jobs again and again, over every offer of the embedded book."""
    night = plan_request([str(NIGHTLY)], "embedded", NIGHTLY / "limits.yaml", NOW, PlanOptions()).request
    request = replace(
        night,
        jobs=many_jobs(night.jobs, count, NOW),
        limits=many_limits(night.limits, count / len(night.jobs)),
        time_limit=time_limit,
    )
    print(f"\n{count} JOBS x {len(request.book.offers):,} OFFERS (time limit {time_limit.total_seconds():.0f} s)")
    _show(timed_plan(request), request)


def _show(timed: Timed, request: PlanRequest) -> None:
    plan, jobs = timed.plan, len(request.jobs)
    print(f"  planning          {timed.wall:8.2f} s {timed.wall / jobs:10.3f} s a job")
    for phase in ("feasibility", "build", "solve", "price"):
        seconds = getattr(timed.phases, phase)
        print(f"    {phase:15} {seconds:8.2f} s {seconds / timed.wall:10.1%}")
    engine = timed.engine
    print(f"    HiGHS in solve  {engine.seconds:8.2f} s {engine.seconds / timed.wall:10.1%}, {engine.runs} runs")
    outside = timed.wall - timed.phases.solve
    print(f"  outside: the solve phase {outside / timed.wall:.1%}, HiGHS {timed.outside_engine:.1%}")
    limit = ", time limit hit" if timed.plan.time_limit_hit else ""
    print(
        f"  {plan.status}{limit}: cost ${plan.cost_usd.dollars():,.2f}, gap {plan.gap:.2%} "
        f"(asked {plan.gap_asked:.2%}), {len(plan.unplaced)} of {jobs} unplaced"
    )


def _seconds(command: list[str], codes: tuple[int, ...] = (0,)) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    took = time.perf_counter() - began
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr}")
    return took


if __name__ == "__main__":
    main()
