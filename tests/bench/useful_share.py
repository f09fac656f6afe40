"""Compare the useful share of the planner with simulated gangs, and the interval it chooses with the best there is.

    python -m tests.bench.useful_share [--lives 2000]

First table: how far the formula is from gangs simulated event by event (:mod:`tests.support.checkpointed_gangs`), in
percentage points, by interruptions in an interval. The grid varies the stall of a save, the write beside the training
and the restart. The last column is what the formula leaves out: the same gangs where a start-up can be hit as well.

Second table: what intervals cost over the numeric optimum, by the stall as a share of the time between interruptions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np

from router.jobs.goodput import best_interval_hours
from tests.support.share_grid import LOADS, STALLS, WRITES, ShareComparison, compare_shares, gangs_of

STALL_SHARES = (1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the useful share with simulated gangs.")
    parser.add_argument("--lives", type=int, default=2000, help="simulated lives of each gang (default 2000)")
    for line in report(parser.parse_args().lives):
        print(line, flush=True)


def report(lives: int) -> Iterator[str]:
    yield "USEFUL SHARE: formula less simulation, percentage points (worst, and mean of the absolute values)"
    yield "  per interval   saves that stop    written beside    where start-ups are hit too"
    for load in LOADS:
        stopping = compare_shares(gangs_of((load,), STALLS, WRITES[:1]), lives)
        beside = compare_shares(gangs_of((load,), STALLS[:3], WRITES[1:]), lives)
        hit = compare_shares(gangs_of((load,), STALLS, WRITES[:1]), lives, restart_is_hit=True)
        yield f"  {load:12g}   {_points(stopping):15}    {_points(beside):14}    {_points(hit)}"
    yield ""
    yield "INTERVAL: cost of a step over the numeric optimum"
    yield "  stall x rate    chosen     Young      Daly"
    for share in STALL_SHARES:
        chosen, young, daly = (100 * cost for cost in costs_over_optimum(share))
        yield f"  {share:12g}   {chosen:6.3f} %  {young:6.3f} %  {daly:6.3f} %"


def _points(found: tuple[ShareComparison, ...]) -> str:
    worst = max(found, key=lambda c: abs(c.points)).points
    mean = sum(abs(c.points) for c in found) / len(found)
    return f"{worst:+6.2f}  {mean:5.2f}"


def costs_over_optimum(stall_share: float) -> tuple[float, float, float]:
    """Return what the chosen interval, Young's and Daly's cost over the best of a search; a mean life is 100 hours."""
    rate, stall = 0.01, stall_share / 0.01
    young = math.sqrt(2 * stall / rate)
    ratio = stall * rate / 2
    daly = young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall if ratio < 1 else 1 / rate
    least = min(cost_of(float(hours), rate, stall) for hours in young * np.exp(np.linspace(-4, 4, 8001)))
    chosen = best_interval_hours(rate, stall, 0.0)
    over = [max(0.0, cost_of(interval, rate, stall) / least - 1) for interval in (chosen, young, daly)]
    return over[0], over[1], over[2]


def cost_of(interval: float, rate: float, stall: float) -> float:
    """Return wall time for an hour of lasting work, restarts aside: segments tried until one is done."""
    return math.expm1(rate * (interval + stall)) / (rate * interval)


if __name__ == "__main__":
    main()
