"""Means of the lives of gangs on spot, at levels of their hazard. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing.hazard import AGE_SCALE_HOURS, HazardShape
from router.jobs.renewals import Floats

_LEAST_RATE: Final = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class Lives:
    """Lives X after their first hours, by level: how likely they reach them, and the scale of the hazard from there.

    ``square`` is that of the scale.
    """

    shape: HazardShape
    levels: Floats
    alive: Floats
    scale: Floats
    square: Floats

    @classmethod
    def of_windows(cls, lives: Sequence[Lives], run_of: NDArray[np.intp]) -> Lives:
        """Return lives by [window, level], each by its number among lives of the same levels."""
        first = lives[0]
        alive, scale, square = (
            np.array([getattr(each, name) for each in lives])[run_of] for name in ("alive", "scale", "square")
        )
        return cls(first.shape, first.levels, alive, scale[:, None], square[:, None])

    def kept(self, hours: Floats) -> tuple[Floats, Floats]:
        """Return the mean of K = min(max(X - begin, 0), hours), and of its square; levels are the last axis."""
        if self.shape is HazardShape.CONSTANT:
            rate = np.maximum(self.levels, _LEAST_RATE)
            x = rate * hours
            return -self.alive * np.expm1(-x) / rate, 2 * self.alive * (1 - np.exp(-x) * (1 + x)) / rate**2
        grown = np.log1p(hours / self.scale)

        def grown_to(power: Floats) -> Floats:
            near = np.abs(power) < 1e-6
            if not near.any():
                return np.asarray(np.expm1(power * grown) / power)
            return np.where(near, grown, np.expm1(power * grown) / np.where(near, 1.0, power))

        first = grown_to(1 - self.levels)
        second = grown_to(2 - self.levels) - first
        return self.alive * self.scale * first, 2 * self.alive * self.square * second


@lru_cache(maxsize=4096)
def lives_after(shape: HazardShape, levels: tuple[float, ...], begin: float) -> Lives:
    """Return the lives of these levels after ``begin`` hours."""
    grid, scale = np.array(levels), AGE_SCALE_HOURS + begin
    if shape is HazardShape.CONSTANT:
        alive = np.exp(-np.maximum(grid, _LEAST_RATE) * begin)
    else:
        alive = (1 + begin / AGE_SCALE_HOURS) ** -grid
    return Lives(shape, grid, alive, np.array(scale), np.array(scale**2))


@lru_cache(maxsize=4096)
def mean_life_within(shape: HazardShape, levels: tuple[float, ...], hours: float) -> Floats:
    """Return by level the mean of min(X, hours) of a life X."""
    return lives_after(shape, levels, 0.0).kept(np.array(hours))[0]
