"""Block bootstrap: the interval of a mean over overlapping windows, resampled by whole groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval.

    ``effective`` is the number of independent values that would give the same certainty; at most the number of values.
    """

    mean: float
    low: float
    high: float
    effective: float


def bootstrap_interval(values: Floats, groups: Ints, level: float = 0.9, draws: int = 2000, seed: int = 0) -> Interval:
    """Return the block bootstrap interval of the mean of ``values``, drawing whole groups with replacement.

    Raise ValueError without values, or where the arrays differ in length. One group alone gives no interval: it is the
    mean itself, with one effective value.
    """
    if values.ndim != 1 or values.shape != groups.shape or not values.size:
        raise ValueError("give at least one value, and the group of each value")
    _, which = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(which, values), np.bincount(which)
    mean = float(values.mean())
    if counts.size == 1:
        return Interval(mean, mean, mean, 1.0)
    drawn = np.random.default_rng(seed).integers(counts.size, size=(draws, counts.size))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    spread = float(means.var())
    effective = float(values.size) if spread == 0 else min(float(values.size), float(values.var()) / spread)
    return Interval(mean, float(low), float(high), effective)
