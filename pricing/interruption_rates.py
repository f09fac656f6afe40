"""Rates of interruptions from counts, with an interval: the gamma posterior of losses in hours of exposure.

Before anything is observed the rate of a pool is gamma-distributed: its mean is what weaker evidence says, its shape k
says how much rates differ from pool to pool. After n losses in T hours it is gamma with shape n + k, rate T + k / mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pricing.observed_risk import Exposure

# How much rates differ between pools: fitted on the first halves of 47 recorded pools
# (docs/design/055-interruption-rates.md). A shape of 1 is an exponential spread about the mean.
POOL_SHAPE: Final = 0.84
LOW, HIGH = 0.1, 0.9  # the interval of every rate holds four times in five
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class PriorShape:
    """Rates before anything is observed: gamma with this shape and mean (per hour)."""

    shape: float
    mean: float


@dataclass(frozen=True, slots=True)
class RateInterval:
    """A rate per hour and the interval that holds it four times in five; None where no edge is known."""

    per_hour: float
    low: float | None
    high: float | None


def posterior_rate(seen: Exposure, prior: PriorShape) -> RateInterval:
    """Return the posterior mean and interval after ``seen``; without any exposure they are the prior's own.

    ValueError for a prior whose mean or shape is not above zero.
    """
    if not (prior.mean > 0 and prior.shape > 0):
        raise ValueError("the prior needs a mean and a shape above 0")
    shape, hours = seen.losses + prior.shape, seen.hours + prior.shape / prior.mean
    low, high = (gamma_quantile(shape, p) / hours for p in (LOW, HIGH))
    return RateInterval(shape / hours, low, high)


def prior_interval(mean: float, shape: float = POOL_SHAPE) -> RateInterval:
    """Return a prior of this mean with the interval in which the rates of pools lie; a mean of 0 has none."""
    if mean == 0:
        return RateInterval(0.0, None, None)
    return posterior_rate(Exposure(), PriorShape(shape, mean))


@lru_cache(maxsize=4096)
def gamma_quantile(shape: float, probability: float) -> float:
    """Return x with P(a gamma of this shape and rate 1 is at most x) = ``probability``, by bisection."""
    low, high = 0.0, max(1.0, shape)
    while gamma_probability(shape, high) < probability:
        low, high = high, 2 * high
    while high - low > 1e-12 * high and high > _TINY:
        middle = (low + high) / 2
        low, high = (middle, high) if gamma_probability(shape, middle) < probability else (low, middle)
    return high


def gamma_probability(shape: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function: a series up to shape + 1, a continued fraction beyond."""
    if x <= 0:
        return 0.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        count = shape
        while term > total * 1e-16:
            count += 1
            term *= x / count
            total += term
        return min(1.0, scale * total)
    # Lentz's method.
    b = x + 1 - shape
    c, d = 1 / _TINY, 1 / b
    fraction = d
    for i in range(1, 10_000):
        a = -i * (i - shape)
        b += 2
        d = 1 / (a * d + b or _TINY)
        c = b + a / c or _TINY
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return max(0.0, 1 - scale * fraction)
