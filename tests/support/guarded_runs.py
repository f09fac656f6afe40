"""Simulate guarded runs life by life: the oracle of the renewal tables, which knows no formula of theirs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pricing.hazard import AGE_SCALE_HOURS, Hazard, HazardShape
from pricing.risk_levels import POOL_DEVIATION
from router.jobs.guarded_run import GuardedWork
from router.jobs.interruption_sums import LEAVE_AFTER
from router.jobs.pool_waits import PHASES

Floats = NDArray[np.float64]
_MOST_LIVES = 4000
_SPELLS = 200


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedRuns:
    """Hours billed on spot (beyond the first start-up) and on the fallback, whether it was needed, interruptions.

    ``last_moment``: the fallback was begun with too little time left to lose it once.
    """

    spot: Floats
    fallback: Floats
    needed: NDArray[np.bool_]
    last_moment: NDArray[np.bool_]
    interruptions: Floats

    def usd(self, spot: float, fallback: float) -> float:
        """Return the mean cost at these prices an hour."""
        return float((self.spot * spot + self.fallback * fallback).mean())


def simulate_guarded_runs(
    run: GuardedWork,
    hazard: Hazard,
    window: float,
    draws: int,
    seed: int,
    bridged_share: float = 0.0,
    age: float = 0.0,
    *,
    at_any_moment: bool = False,
    leave_after: int | None = None,
    change_above: float | None = None,
) -> SimulatedRuns:
    """Return runs at levels drawn from the hazard, each restarted in place until the guard acts.

    A life is launched only if its start-up still leaves time for the fallback. What is lost with a life is uniform
    between nothing and twice the mean loss, and no more than was done in it. With ``leave_after`` the gang leaves its
    pool for the fallback after so many interruptions, without it never. With no more than ``bridged_share`` of the
    slack left it works on the fallback until the pool has machines again. With an ``age`` the gang runs already, for so
    many hours: its first life has that hazard, and no start-up. ``at_any_moment`` it may be asked for while the pool
    has no machines, so that what is left of the wait goes first. With ``change_above`` the gang changes to another
    pool of its kind, after :data:`LEAVE_AFTER` interruptions in one whose level is above that.
    """
    rng = np.random.default_rng(seed)
    level = rng.choice(np.array(hazard.levels), draws, p=np.array(hazard.weights))
    pools = None if change_above is None else _Pools.of(hazard, draws, rng)
    if pools is not None:
        level = pools.draw_levels(np.arange(draws))
    in_pool = np.zeros(draws)
    ratio = run.fallback_ratio
    assert ratio is not None
    work = run.work * np.maximum(1 + run.relative_error * rng.standard_normal(draws), 0.2)
    clock, done, spot, fallback, hits = (np.zeros(draws) for _ in range(5))
    last_start = run.fallback_start + run.margin
    kept = bridged_share * np.maximum(window - last_start - work * max(1.0, ratio), 0.0)
    if at_any_moment:
        clock = _waits_at_any_moment(run, hazard.shape, level, rng)
    needed, last_moment, active = np.zeros(draws, dtype=bool), np.zeros(draws, dtype=bool), np.ones(draws, dtype=bool)
    for life in range(_MOST_LIVES):
        rows = np.flatnonzero(active)
        if not rows.size:
            break
        startup = run.restart if life else 0.0
        left = work[rows] - done[rows]
        # As the controller's guard: what spot would still do there must leave time for the fallback at any moment.
        least = last_start + left * max(1.0, ratio)
        late = rows[clock[rows] + startup + least > window + 1e-9]
        fallback[late] += run.fallback_start + (work[late] - done[late]) * ratio
        needed[late], last_moment[late], active[late] = True, True, False
        rows = np.setdiff1d(rows, late, assume_unique=True)
        aged = age > 0 and not life
        lived = _lives(hazard.shape, level[rows], rng, age if aged else 0.0) + (run.restart if aged else 0.0)
        wanted = run.restart + work[rows] - done[rows]
        ends = lived >= wanted
        first = run.restart if not life else 0.0  # the first start-up is paid apart
        finished = rows[ends]
        spot[finished] += wanted[ends] - first
        active[finished] = False
        rows, lived = rows[~ends], lived[~ends]
        worked = np.maximum(lived - run.restart, 0.0)
        lost = np.minimum(worked, 2 * run.loss * rng.random(rows.size))
        done[rows] += worked - lost
        spot[rows] += np.maximum(lived - first, 0.0)
        hits[rows] += 1
        clock[rows] += np.maximum(lived - first, 0.0)
        in_pool[rows] += 1
        if pools is not None:
            changes = rows[(in_pool[rows] >= LEAVE_AFTER) & (level[rows] > change_above)]
            level[changes] = pools.draw_levels(changes)
            in_pool[changes] = 0
        if leave_after == life + 1:
            rest = (work[rows] - done[rows]) * max(1.0, ratio)
            fallback[rows] += run.fallback_start + (work[rows] - done[rows]) * ratio
            last_moment[rows] = window - clock[rows] - last_start - rest < run.fallback_start + run.loss
            needed[rows], active[rows] = True, False
            break
        waits = draw_waits(run.recovery, rows.size, rng)
        least = last_start + (work[rows] - done[rows]) * max(1.0, ratio)
        bridges = (bridged_share > 0) & (window - clock[rows] - least < kept[rows] + 1e-9)
        # A wait that would use up what is kept ends where bridging begins.
        begins = np.where(bridges, 0.0, np.maximum(window - clock[rows] - least - kept[rows], 0.0))
        falls = bridges | ((bridged_share > 0) & (begins < waits))
        clock[rows] += np.where(falls, begins, waits)
        some, waits = rows[falls], (waits - begins)[falls]
        in_time = window - clock[some] >= last_start + (work[some] - done[some]) * max(1.0, ratio) - 1e-9
        some, waits = some[in_time], waits[in_time]
        # The fallback starts while the pool is waited for; what is left of the wait it works.
        works = np.minimum(waits, (work[some] - done[some]) * ratio)
        clock[some] += run.fallback_start + works
        done[some] += works / ratio
        fallback[some] += run.fallback_start + works
        needed[some] = True
        active[some[done[some] >= work[some] - 1e-9]] = False
    return SimulatedRuns(spot, fallback, needed, last_moment, hits)


@dataclass(frozen=True, eq=False, slots=True)
class _Pools:
    """Pools of one kind for each run: the log of a level is that of their kind, and a normal deviation of their own."""

    kind: Floats
    deviation: float
    levels: Floats
    rng: np.random.Generator

    @classmethod
    def of(cls, hazard: Hazard, draws: int, rng: np.random.Generator) -> _Pools:
        logs, weights = np.log(np.array(hazard.levels)), np.array(hazard.weights)
        middle = float(logs @ weights)
        variance = float((logs - middle) ** 2 @ weights)
        own = min(POOL_DEVIATION**2, variance)
        return cls(rng.normal(middle, math.sqrt(variance - own), draws), math.sqrt(own), np.array(hazard.levels), rng)

    def draw_levels(self, runs: NDArray[np.int64]) -> Floats:
        """Return the level of another pool for each of these runs, within those of the hazard."""
        logs = self.kind[runs] + self.rng.normal(0.0, self.deviation, runs.size)
        return np.clip(np.exp(logs), self.levels[0], self.levels[-1])


def _waits_at_any_moment(run: GuardedWork, shape: HazardShape, level: Floats, rng: np.random.Generator) -> Floats:
    """Return what is left of the pool's wait at a moment far from its beginning; 0 where it has machines then.

    Lives and waits alternate; a pool that keeps its machines longer than three days counts as if it kept them so long.
    """
    left = np.zeros(level.size)
    for number, own in enumerate(level.tolist()):
        lives = np.minimum(_lives(shape, np.full(_SPELLS, own), rng, 0.0), 72.0)
        waits = draw_waits(run.recovery, _SPELLS, rng)
        ends = np.cumsum(np.ravel(np.column_stack((lives, waits))))
        moment = rng.random() * ends[-1]
        spell = int(np.searchsorted(ends, moment))
        left[number] = ends[spell] - moment if spell % 2 else 0.0
    return left


def draw_waits(mean: float, count: int, rng: np.random.Generator) -> Floats:
    phase = rng.choice(len(PHASES), count, p=[share for share, _ in PHASES])
    return np.asarray(rng.exponential(mean, count) * np.array([of_mean for _, of_mean in PHASES])[phase])


def _lives(shape: HazardShape, level: Floats, rng: np.random.Generator, age: float) -> Floats:
    uniform = np.maximum(rng.random(level.size), 1e-300)
    if shape is HazardShape.CONSTANT:
        return np.asarray(-np.log(uniform) / level)
    with np.errstate(over="ignore"):
        return np.asarray((AGE_SCALE_HOURS + age) * (uniform ** (-1 / level) - 1))
