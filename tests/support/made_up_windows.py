"""Windows of made-up availability, independent of each other, one after the other in one series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from router.spot.availability.hazard_model import HazardModel, simulate_availability
from router.spot.simulator.inputs import SimulationInputs, Task
from router.spot.simulator.traces import Series, ZoneSeries


def made_up(
    outlook: HazardModel,
    task: Task,
    tick_s: int,
    spot_usd: Sequence[float],
    demand_usd: Sequence[float],
    windows: int,
    seed: int = 11,
) -> SimulationInputs:
    """Each from usual availability, of the hazards that are expected; free moves, one speed."""
    rng, ticks = np.random.default_rng(seed), task.ticks(tick_s)
    hazards = outlook.mean()[None].repeat(windows, 0)
    up = simulate_availability(hazards, outlook.usual(windows, rng, hazards), ticks, tick_s, rng)
    counts = up.transpose(1, 0, 2).reshape(outlook.zones, -1).astype(np.int64)
    zones = tuple(
        ZoneSeries(f"z{i}", f"r{i}", counts[i], np.full(counts.shape[1], spot_usd[i]), demand_usd[i])
        for i in range(outlook.zones)
    )
    return SimulationInputs.of(task, Series(tick_s, zones), np.arange(windows) * ticks)
