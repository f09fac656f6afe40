"""How large a night can be planned: time, memory and certified gap by number of jobs.

    python -m tests.bench.many_nights [--jobs 40 100 300] [--seeds 1 2] [--busy]

40 jobs are the 24 examples with 16 copies and budgets; larger nights are those of :mod:`tests.bench.nights` over the
whole embedded book, 24 hourly slots and an outlook. Each case is a process of its own. With ``--busy`` each is planned
again beside two busy loops, and must give the same bytes. The independent checker judges every plan.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from router.app.plan import PlanOptions, plan_request
from router.cli import fix_numeric_kernels
from router.planning.document.plan_json import plan_content
from router.planning.planner import PlanRequest, make_plan
from router.prices.books import load_book
from tests.bench.hundred_jobs import many_jobs, many_limits
from tests.bench.nights import realistic_night
from tests.support.checker import check_plan
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
GAPS = {40: 0.01, 100: 0.01, 300: 0.03, 1000: 0.015}
COPIES = 40
# Also beside much other work the counts end the search, never the clock.
LIMIT = timedelta(hours=1)


def request_of(jobs: int, seed: int) -> PlanRequest:
    """The night of that size; a time limit that leaves the end to the counts."""
    if jobs <= COPIES:
        nightly = ROOT / "examples" / "nightly"
        night = plan_request([str(nightly)], "embedded", nightly / "limits.yaml", NOW, PlanOptions()).request
        return replace(
            night,
            jobs=many_jobs(night.jobs, jobs, NOW),
            limits=many_limits(night.limits, jobs / len(night.jobs)),
            time_limit=LIMIT,
            gap=GAPS[COPIES],
        )
    made = realistic_night(jobs, seed, NOW)
    gap = GAPS.get(jobs, 0.01)
    return PlanRequest(made.jobs, load_book("embedded"), made.limits, NOW, time_limit=LIMIT, gap=gap)


def figures(jobs: int, seed: int) -> dict[str, object]:
    """Plan once and return what was measured."""
    request = request_of(jobs, seed)
    wall, processor = time.monotonic(), time.process_time()
    plan = make_plan(request)
    return {
        "jobs": jobs,
        "seed": seed,
        "wall": time.monotonic() - wall,
        "processor": time.process_time() - processor,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "gap": plan.gap,
        "asked": plan.gap_asked,
        "usd": plan.cost_usd.dollars(),
        "unplaced": len(plan.unplaced),
        "proven": plan.stage_one_proven,
        "cuts": [f"{cut.phase} by {cut.by}" for cut in plan.cuts],
        "digest": plan_content(plan)["digest"],
        "wrong": check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time, memory and certified gap by number of jobs.")
    parser.add_argument("--jobs", type=int, nargs="+", default=[40, 100, 300])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--busy", action="store_true", help="plan again beside two busy loops and compare the bytes")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    fix_numeric_kernels()  # for the processes that plan
    if asked.one:
        print(json.dumps(figures(*asked.one)))
        return
    print("MANY JOBS   jobs seed   wall s  processor s    MiB      gap   asked  left out         cost")
    failed = False
    for jobs in asked.jobs:
        for seed in asked.seeds[:1] if jobs <= COPIES else asked.seeds:
            found = _apart(jobs, seed)
            failed |= bool(found["wrong"])
            _show(found)
            if asked.busy:
                again = _beside_busy_loops(jobs, seed)
                same = again["digest"] == found["digest"]
                failed |= not same
                words = "the same bytes" if same else f"OTHER bytes: cuts {found['cuts']} and {again['cuts']}"
                print(f"            beside two busy loops: {words}, {again['wall']:.1f} s wall", flush=True)
    if failed:
        sys.exit(1)


def _show(found: dict[str, object]) -> None:
    print(
        f"            {found['jobs']:4} {found['seed']:4} {found['wall']:8.1f} {found['processor']:12.1f}"
        f" {found['mib']:6.0f} {found['gap']:8.2%} {found['asked']:7.2%}"
        f" {found['unplaced']:4} {'proven' if found['proven'] else 'at least':8} {found['usd']:12,.2f}",
        flush=True,
    )
    for words in (*found["cuts"], *found["wrong"]):  # type: ignore[misc]
        print(f"              {words}")


def _apart(jobs: int, seed: int) -> dict[str, object]:
    """Plan in a process of its own, with the kernels of the command line."""
    command = [sys.executable, "-m", "tests.bench.many_nights", "--one", str(jobs), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _beside_busy_loops(jobs: int, seed: int) -> dict[str, object]:
    loops = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2)]
    for loop in loops:
        loop.start()
    try:
        return _apart(jobs, seed)
    finally:
        for loop in loops:
            loop.terminate()


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    main()
