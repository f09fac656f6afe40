"""Ticks a second of vectorised policies on one core, and of the least that a window could have cost.

    python -m tests.bench.backtest [--windows 300 3000]

Made-up availability; a tick is one tick of one window that is not done.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.published.baselines import GreedySpot, TimeSliced, UniformProgress, rank_by_price_elsewhere
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import FullInfoPolicy, GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries

TICK_S = 600
TARGET = 1_000_000
TASK = Task(48 * 3600, 60 * 3600, 720)


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="Ticks a second of vectorised policies, and the least cost there is.")
    parser.add_argument("--windows", type=int, nargs=2, default=(300, 3000), help="a few, and many")
    few, many = parser.parse_args(arguments).windows
    print(f"BACK-TEST (processor time of one core; target {TARGET:,} ticks/s)")
    for zones, windows in ((1, few), (1, many), (3, many), (9, many)):
        inputs = made_up(zones, windows)
        for name, policy, net in _policies():
            print(
                f"  {zones} zones, {windows:5,} windows, {name:24}{rate(inputs, policy, net):14,.0f} ticks/s",
                flush=True,
            )
    for zones in (1, 3, 9):
        inputs = made_up(zones, few)
        began = time.process_time()
        compute_least_usd(inputs)
        print(f"  {zones} zones, {few} windows, least cost: {time.process_time() - began:6.2f} s", flush=True)


def _policies() -> list[tuple[str, FullInfoPolicy, GuardMode]]:
    return [
        ("greedy", GreedySpot(), GuardMode.PUBLISHED),
        ("uniform progress", UniformProgress(ranking=rank_by_price_elsewhere), GuardMode.PUBLISHED),
        ("the same, exact net", UniformProgress(ranking=rank_by_price_elsewhere), GuardMode.EXACT),
        ("time sliced", TimeSliced(8), GuardMode.PUBLISHED),
    ]


def rate(inputs: SimulationInputs, policy: FullInfoPolicy, net: GuardMode) -> float:
    """Ticks a second of processor time."""
    began = time.process_time()
    found = simulate(inputs, policy, net)
    return float(found.finish_tick.sum()) / (time.process_time() - began)


def made_up(zones: int, windows: int) -> SimulationInputs:
    """Zones that are up and down for hours, prices that wander."""
    rng = np.random.default_rng(1)
    ticks = windows + TASK.ticks(TICK_S)
    made = []
    for number in range(zones):
        up = np.cumsum(rng.random(ticks) < 0.05) % 2
        prices = np.clip(1 + np.cumsum(rng.normal(0, 0.002, ticks)), 0.3, 2)
        made.append(ZoneSeries(f"z{number}", f"r{number % 3}", up.astype(np.int64), prices, 3.06))
    series = Series(TICK_S, tuple(made))
    return SimulationInputs.of(
        TASK, series, np.arange(windows), ZoneMoveCosts.between(series.regions, lambda a, b: 1.0)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
