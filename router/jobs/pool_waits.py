"""The wait for machines after an interruption: mostly minutes, now and then a day. Pure.

Recorded waits are no exponential: half of them are over after a quarter of their mean, and one in thirty lasts a dozen
times that and is a third of all waiting. So a wait is one of three exponentials. They were fitted to the waits in the
first halves of all recorded pools; ``python -m tests.bench.interruption_rates`` compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from router.jobs.renewals import COUNTS, Floats

#: Share of waits, and their mean over that of all waits.
PHASES: Final = ((0.61, 0.16), (0.36, 1.5), (0.03, 12.08))
_SHARES: Final = np.array([share for share, _ in PHASES])
_MEANS: Final = np.array([mean for _, mean in PHASES])
# Gauss-Laguerre points of an exponential with mean 1.
_POINTS: Final = ((2 - math.sqrt(2), (2 + math.sqrt(2)) / 4), (2 + math.sqrt(2), (2 - math.sqrt(2)) / 4))
#: Waits over their mean, with weights, that stand for all of them.
WAIT_POINTS: Final = (
    PHASES[0][::-1],
    *((mean * x, share * weight) for share, mean in PHASES[1:] for x, weight in _POINTS),
)
_LEAST, _MOST, _CELLS = 1e-3, 4096.0, 256  # sums over the mean wait
_STEP: Final = math.log(_MOST / _LEAST) / (_CELLS - 1)
_RARE: Final = 1e-3
_TERMS: Final = 12  # of the inversion: about seven digits


def _merge(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    weight = sum(own for _, own in points)
    return sum(wait * own for wait, own in points) / weight, weight


# What is left of a wait at a moment within it: longer waits hold more moments. Half an hour or so, a shift, days.
_LEFT: Final = [
    (PHASES[0][1], PHASES[0][0] * PHASES[0][1]),
    *((mean * x, share * mean * weight) for share, mean in PHASES[1:] for x, weight in _POINTS),
]
#: Waits that are left at a moment within one, over their mean, with weights.
REMAINING_POINTS: Final = (_merge(_LEFT[:2]), _merge(_LEFT[2:4]), _LEFT[4])


def mean_wait_within(hours: Floats, mean: float) -> Floats:
    """Return the mean of min(wait, hours), where waits have this mean; hours may be inf."""
    if mean <= 0:
        return np.zeros_like(hours)
    parts = (_SHARES[:, None] * _MEANS[:, None] * mean * np.expm1(-hours.ravel() / (_MEANS[:, None] * mean))).sum(
        axis=0
    )
    return np.asarray(-parts.reshape(hours.shape))


def mean_square_wait_within(hours: Floats, mean: float) -> Floats:
    """Return the mean of the square of min(wait, hours), where waits have this mean; hours are finite."""
    if mean <= 0:
        return np.zeros_like(hours)
    x = hours.ravel() / (_MEANS[:, None] * mean)
    parts = (2 * _SHARES[:, None] * (_MEANS[:, None] * mean) ** 2 * (1 - np.exp(-x) * (1 + x))).sum(axis=0)
    return np.asarray(parts.reshape(hours.shape))


def return_rates(edges: Sequence[float], mean: float) -> tuple[float, ...]:
    """Return how often an hour a wait ends, between each two of these ages in hours and after the last."""
    ages = np.array([*edges, math.inf])
    lasting = (_SHARES * np.exp(-ages[:, None] / (_MEANS * mean))).sum(axis=-1)
    waited = np.diff(mean_wait_within(ages, mean))
    return tuple((-np.diff(lasting) / waited).tolist())


def sums_within(hours: Floats, mean: float, last: int) -> Floats:
    """Return the probability that so many waits together take at most ``hours``, to 0.001.

    The numbers are the first ``last`` of :data:`~router.jobs.renewals.COUNTS`, along the last axis of ``hours``.
    """
    return sum_within(hours, mean, np.arange(last))


def sum_within(hours: Floats, mean: float, place: NDArray[np.intp]) -> Floats:
    """Return the same of as many waits as stand at a place of :data:`~router.jobs.renewals.COUNTS`."""
    if mean <= 0:
        return np.asarray((hours >= 0).astype(np.float64))
    # In place: this is most of the time that guarded runs take.
    along = np.maximum(hours, _LEAST * mean)
    along *= 1 / (_LEAST * mean)
    np.log(along, out=along)
    along *= 1 / _STEP
    np.minimum(along, _CELLS - 1.0001, out=along)
    before = np.trunc(along)
    along -= before
    cell = before.astype(np.intp)
    cell += _CELLS * place
    table, rises = _sums()
    probability = table.take(cell)
    along *= rises.take(cell)
    probability += along
    probability *= hours > 0
    return probability


def counts_within(hours: Floats, mean: float) -> NDArray[np.int64]:
    """Return how many of :data:`~router.jobs.renewals.COUNTS` matter: that many waits rarely take so little."""
    if mean <= 0:
        return np.full(np.shape(hours), len(COUNTS))
    finite = np.isfinite(hours)
    most = np.where(finite, np.maximum(hours, 0.0), 0.0)[..., None]
    likely = sums_within(np.broadcast_to(most, (*np.shape(hours), len(COUNTS))), mean, len(COUNTS)) > _RARE
    return np.where(finite, np.minimum(len(COUNTS), likely.sum(axis=-1) + 1), len(COUNTS))


@lru_cache(maxsize=1)
def _sums() -> tuple[Floats, Floats]:
    """Return P(n waits of mean 1 take at most x), by count and then by x, and its rise to the next x.

    The inverse of the Laplace transform by the Euler sum of Abate and Whitt (2006).
    """
    x = np.exp(math.log(_LEAST) + _STEP * np.arange(_CELLS))
    k = np.arange(2 * _TERMS + 1)
    weights = np.ones(2 * _TERMS + 1)
    weights[0], weights[-1] = 0.5, 2.0**-_TERMS
    for j in range(1, _TERMS):
        weights[2 * _TERMS - j] = weights[2 * _TERMS - j + 1] + 2.0**-_TERMS * math.comb(_TERMS, j)
    weights *= (-1.0) ** k * 10 ** (_TERMS / 3)
    s = (_TERMS * math.log(10) / 3 + 1j * math.pi * k) / x[:, None]
    one = (_SHARES / (1 + _MEANS * s[..., None])).sum(axis=-1)
    sums = np.array([((one**n / s).real @ weights) / x for n in COUNTS.tolist()])
    sums = np.maximum.accumulate(np.clip(sums, 0.0, 1.0), axis=1)
    return sums.ravel(), np.diff(sums, axis=1, append=1.0).ravel()
