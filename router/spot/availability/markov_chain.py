"""Spot availability as a Markov chain of few states, for backward induction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router.spot.availability.hazards import FAST_H, AvailabilitySignals, LogisticHazards
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.traces import Floats, Ints

Singles = NDArray[np.float32]


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

    def lasting(self) -> Floats:
        """Return by [class, up, age, level] the expected ticks until spot is lost; 0 where there is none."""
        ticks = np.zeros_like(self.change)
        for _ in range(int(4 * self.shape.ages[-1])):
            ticks[:, 1] = (1 + (1 - self.change) * self.next_if(ticks)[0])[:, 1]
        return ticks.astype(np.float64)


def _levels(values: Floats, grid: Floats) -> tuple[Ints, Floats]:
    low = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, grid.size - 2)
    return low, np.clip((values - grid[low]) / (grid[low + 1] - grid[low]), 0, 1)
