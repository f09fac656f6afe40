"""Logistic hazard model: the probability that a zone's spot is lost or comes back in the next tick.

What was seen of a zone is three signals: time since the last change; availability smoothed over hours; availability
smoothed over days, which tells zones and regimes apart. The odds of a change are logistic in them, one fit for all
zones of a series: a zone's own past enters through the slow signal, so a zone with little past is shrunk to the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.traces import Bools, Floats, Ints

FAST_H = 8.0
SLOW_H = 48.0
LONGEST_AGE_H = 72.0
_PRIOR = 0.5
_RIDGE = 1.0
_SLOPES_RIDGE = 4.0
_ROUNDS = 30
_WIDEST = 8.0  # log odds
Singles = NDArray[np.float32]


@dataclass(eq=False, slots=True)
class AvailabilitySignals:
    """The signals of many zones at once, any shape, as of the last tick that was seen."""

    up: Bools
    age_h: Floats
    fast: Floats
    slow: Floats

    @classmethod
    def unseen(cls, shape: tuple[int, ...], mean: float = _PRIOR) -> AvailabilitySignals:
        """Return the signals before anything was seen: as available as ``mean``."""
        some = np.full(shape, mean)
        return cls(np.zeros(shape, dtype=bool), np.zeros(shape), some, some.copy())

    def at(self, rows: Ints) -> AvailabilitySignals:
        """Return the signals [zone, window] of these windows."""
        return AvailabilitySignals(self.up[:, rows], self.age_h[:, rows], self.fast[:, rows], self.slow[:, rows])

    def see(self, up: Bools, tick_s: int, is_observed: Bools | bool = True) -> None:
        """Take a tick in; where ``is_observed`` is false nothing changes."""
        hours = tick_s / HOUR_S
        same = (up == self.up) & (self.age_h > 0)
        age = np.minimum(np.where(same, self.age_h + hours, hours), LONGEST_AGE_H)
        self.age_h = np.where(is_observed, age, self.age_h)
        self.fast = np.where(is_observed, self.fast + (up - self.fast) * -np.expm1(-hours / FAST_H), self.fast)
        self.slow = np.where(is_observed, self.slow + (up - self.slow) * -np.expm1(-hours / SLOW_H), self.slow)
        self.up = np.where(is_observed, up, self.up)


def iterate_signals(up: Bools, tick_s: int, mean: float = _PRIOR) -> Iterable[tuple[AvailabilitySignals, Bools]]:
    """Yield the signals after each tick of [zone, tick] but the last, and the availability of the next tick."""
    seen = AvailabilitySignals.unseen(up.shape[:1], mean)
    for i in range(up.shape[1] - 1):
        seen.see(up[:, i], tick_s)
        yield seen, up[:, i + 1]


def design_matrix(age_h: Floats, fast: Floats, slow: Floats) -> Floats:
    """Return the design matrix [case, column] of the regression; ages are in hours above zero."""
    age = np.log(age_h)
    columns = np.stack([np.ones_like(age), age, 2 * fast - 1, 2 * slow - 1], axis=-1)
    return np.reshape(columns, (-1, columns.shape[-1]))


def fit_logistic(x: Floats, happened: Bools) -> Floats:
    """Return the weights of a ridge-penalised logistic regression; without cases the odds are even at every tick."""
    columns = x.shape[1]
    penalty = np.diag([_RIDGE * 0.01] + [_SLOPES_RIDGE] * (columns - 1))
    # The prior of the level is half a change in a hundred ticks.
    w: Floats = np.zeros(columns)
    w[0] = np.log((happened.sum() + 0.5) / (happened.size - happened.sum() + 50))
    centre = w.copy()
    for _ in range(_ROUNDS):
        p = change_probabilities(x, w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + penalty
        step = np.linalg.solve(hessian, x.T @ (happened - p) - penalty @ (w - centre))
        w = w + step
        if np.abs(step).max() < 1e-8:
            break
    return w


def change_probabilities(x: Floats, weights: Floats) -> Floats:
    """Return the probabilities of a change."""
    share: Floats = 1 / (1 + np.exp(-np.clip(x @ weights, -_WIDEST, _WIDEST)))
    return share


@dataclass(frozen=True, eq=False, slots=True)
class LogisticHazards:
    """Hazards per tick of ``tick_s`` by their weights: ``fall`` of spot that is there, ``rise`` of spot that is not."""

    tick_s: int
    fall: Floats
    rise: Floats
    mean: float

    @classmethod
    def of(cls, parts: Iterable[Bools], tick_s: int) -> LogisticHazards:
        """Return the model learned from [zone, tick] arrays of availability at this tick."""
        parts = [p for p in parts if p.size]
        mean = (sum(float(p.sum()) for p in parts) + 1) / (sum(p.size for p in parts) + 2)
        rows: list[tuple[Bools, Floats, Bools]] = []
        for part in parts:
            for seen, then in iterate_signals(part, tick_s, mean):
                rows.append((seen.up, design_matrix(seen.age_h, seen.fast, seen.slow), then != seen.up))
        if not rows:
            rows = [(np.zeros(0, dtype=bool), np.zeros((0, 4)), np.zeros(0, dtype=bool))]
        up, x, change = (np.concatenate(c) for c in zip(*rows, strict=True))
        return cls(tick_s, fit_logistic(x[up], change[up]), fit_logistic(x[~up], change[~up]), mean)

    def changes(self, up: Bools, age_h: Floats, fast: Floats, slow: Floats) -> Floats:
        """Return the probability that the next tick is not like this one."""
        x = design_matrix(age_h, fast, slow)
        falls, rises = (change_probabilities(x, weights) for weights in (self.fall, self.rise))
        return np.where(up.ravel(), falls, rises).reshape(up.shape)


@dataclass(frozen=True, eq=False, slots=True)
class ChainShape:
    """The states of a chain: values of the signals that it tells apart.

    ``ages`` are in ticks, from 1 on; ``levels`` are of the fast signal and ``classes`` of the slow one, from 0 to 1.
    """

    ages: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 96)
    levels: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    classes: tuple[float, ...] = (0.05, 0.35, 0.65, 0.95)


@dataclass(frozen=True, eq=False, slots=True)
class AvailabilityChain:
    """A Markov chain of availability; ``change`` [class, up, age, level] is the probability that the next tick differs.

    A class, a value of the slow signal, is taken as lasting. The fast signal and the age move at random to one of the
    two grid values that they would lie between, right on average.
    """

    hazards: LogisticHazards
    shape: ChainShape
    change: Singles
    low: Ints
    high: Singles

    @classmethod
    def of(cls, hazards: LogisticHazards, shape: ChainShape | None = None) -> AvailabilityChain:
        """Return the chain whose changes have the probabilities that ``hazards`` gives in each state."""
        shape = shape or ChainShape()
        hours = hazards.tick_s / HOUR_S
        grid = np.meshgrid(shape.classes, [0.0, 1.0], np.array(shape.ages) * hours, shape.levels, indexing="ij")
        change = hazards.changes(grid[1] > 0, grid[2], grid[3], grid[0])
        levels = np.array(shape.levels)
        then = np.array([[0.0], [1.0]])
        low, high = _levels(levels + (then - levels) * -np.expm1(-hours / FAST_H), levels)
        return cls(hazards, shape, change.astype(np.float32), low, high.astype(np.float32))

    @property
    def older(self) -> Floats:
        """The probability, by [age], of growing to the next age in a tick."""
        gaps = np.diff(self.shape.ages).astype(float)
        return np.append(1 / gaps, 0.0)

    def next_if(self, values: Singles) -> tuple[Singles, Singles]:
        """Return the means of ``values`` over the next state, if availability stays and if it changes.

        ``values`` is by [class, up, age, level, ...]; the means are by the state now.
        """
        more = (None,) * (values.ndim - 4)
        by_level = np.empty_like(values)  # [class, up then, age then, level now]
        for up in (0, 1):
            low, high = self.low[up], self.high[up][(..., *more)]
            part = values[:, up]
            by_level[:, up] = part[:, :, low] * (1 - high) + part[:, :, low + 1] * high
        older = self.older[:-1].astype(np.float32)[(slice(None), None, *more)]
        stays = by_level.copy()
        stays[:, :, :-1] += older * (by_level[:, :, 1:] - by_level[:, :, :-1])
        return stays, by_level[:, ::-1, :1]

    def expect(self, values: Singles) -> Singles:
        """Return the mean of ``values`` over the next state, by the state now."""
        stays, changes = self.next_if(values)
        change = self.change[(..., *(None,) * (values.ndim - 4))]
        means: Singles = stays + change * (changes - stays)
        return means

    def corners(self, seen: AvailabilitySignals) -> tuple[Ints, Ints, Ints, Ints, Floats]:
        """Return by [corner, ...] the states between which the signals lie, and their weights.

        The states are class, up, age and level.
        """
        ticks = np.maximum(seen.age_h * HOUR_S / self.hazards.tick_s, 1)
        age = np.abs(np.log(ticks)[..., None] - np.log(self.shape.ages)).argmin(axis=-1)
        level, higher = _levels(seen.fast, np.array(self.shape.levels))
        first, next_ = _levels(seen.slow, np.array(self.shape.classes))
        steps = ((0, 0), (0, 1), (1, 0), (1, 1))
        weights = [np.where(c, next_, 1 - next_) * np.where(f, higher, 1 - higher) for c, f in steps]
        shape = (4, *seen.up.shape)
        return (
            np.stack([first + c for c, _ in steps]),
            np.broadcast_to(seen.up.astype(np.int64), shape),
            np.broadcast_to(age, shape),
            np.stack([level + f for _, f in steps]),
            np.stack(weights),
        )


def _levels(values: Floats, grid: Floats) -> tuple[Ints, Floats]:
    low = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, grid.size - 2)
    return low, np.clip((values - grid[low]) / (grid[low + 1] - grid[low]), 0, 1)
