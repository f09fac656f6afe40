"""Runs of a gang, event by event, from the figures of its risk alone: no formula of the planner is used.

Interruptions come at exponential times while the gang runs. Work is kept at each checkpoint whose write has ended; an
interruption loses what came after the last of these, and the restart takes its time. A planned stop keeps everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """So many hours held on one gang, after the first start-up. Hours; ``speed`` nominal steps an hour.

    ``relative_error`` is that of the gang's speed.
    """

    hours: float
    speed: float
    relative_error: float
    interruptions_per_hour: float
    recovery_hours: float
    startup_hours: float
    interval_hours: float
    stall_hours: float
    loss_extra_hours: float


@dataclass(frozen=True)
class Outcome:
    """By simulated run: steps still missing at the end, wall and billed hours used (first start-up aside)."""

    missing: Floats
    wall: Floats
    billed: Floats


def simulate(stages: Sequence[Stage], steps: float, runs: int, seed: int) -> Outcome:
    """``runs`` lives of a job through its stages; one error a life, in standard deviations of each gang's speed."""
    rng = np.random.default_rng(seed)
    deviations = rng.standard_normal(runs)
    missing = np.full(runs, float(steps))
    wall, billed = np.zeros(runs), np.zeros(runs)
    for stage in stages:
        slowness = np.maximum(1 + stage.relative_error * deviations, 0.05)
        missing, used, paid = _live(stage, missing, slowness, rng)
        wall += used
        billed += paid
    return Outcome(missing, wall, billed)


def _live(stage: Stage, missing: Floats, slowness: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    segment = stage.interval_hours + stage.stall_hours
    work = missing / stage.speed * slowness  # compute hours left
    used, waited = np.zeros_like(work), np.zeros_like(work)
    alive = work > 0
    while alive.any():
        rows = np.flatnonzero(alive)
        to_failure = rng.exponential(1 / stage.interruptions_per_hour, len(rows))
        to_finish = work[rows] / stage.interval_hours * segment
        to_stop = stage.hours - used[rows]
        ends = np.minimum(np.minimum(to_failure, to_finish), to_stop)
        finished = ends == to_finish
        stopped = ~finished & (ends == to_stop)
        failed = ~finished & ~stopped
        durable = np.floor(np.maximum(ends - stage.loss_extra_hours, 0.0) / segment)
        kept = np.where(failed, durable, ends / segment) * stage.interval_hours
        work[rows] = np.where(finished, 0.0, np.maximum(work[rows] - kept, 0.0))
        used[rows] += ends
        lost = np.where(failed, stage.recovery_hours + stage.startup_hours, 0.0)
        lost = np.minimum(lost, stage.hours - used[rows])
        used[rows] += lost
        waited[rows] += np.where(failed, np.minimum(stage.recovery_hours, lost), 0.0)
        alive[rows] = failed & (used[rows] < stage.hours)
    return work / slowness * stage.speed, used, used - waited
