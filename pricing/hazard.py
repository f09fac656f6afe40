"""Hazard of interruptions and what is known of it: a distribution over levels, updated by what was observed.

A machine of age t is interrupted at the rate ``level / (c + t)`` an hour with c = 0.6 h: what has run for hours is
safer than what has just begun. Of nine published series of AWS and Google pools this form fits best
(docs/interruptions.md). Azure publishes a rate by the hour, which is constant in age. How high the level of a pool is,
nobody knows exactly: it has a weight on each point of a grid. Interruptions in the operational time X of a watch are
Poisson with mean level x X, where X = ln((c + t1) / (c + t0)) from age t0 to t1, or the hours themselves where the rate
is constant. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

AGE_SCALE_HOURS: Final = 0.6
LOW, HIGH = 0.1, 0.9  # every interval holds four times in five
_LEAST_LEVEL, _MOST_LEVEL, _POINTS = 0.004, 32.0, 41
LEVELS: Final = tuple(_LEAST_LEVEL * (_MOST_LEVEL / _LEAST_LEVEL) ** (i / (_POINTS - 1)) for i in range(_POINTS))
_STEP: Final = math.log(LEVELS[1] / LEVELS[0])
_DEVIATIONS_OF_EDGES: Final = 2 * 1.2815515655446004  # between the 10 % and the 90 % quantile of a normal


class HazardShape(StrEnum):
    """How the hazard changes with the age of a machine."""

    FALLING = "falling"
    CONSTANT = "constant"


def operational_time(shape: HazardShape, hours: float, age: float = 0.0) -> float:
    """Return the operational time of a watch of ``hours`` that begins at this age: what the level is multiplied by."""
    if shape is HazardShape.CONSTANT:
        return hours
    return math.log1p(hours / (AGE_SCALE_HOURS + age))


@dataclass(frozen=True, slots=True)
class Hazard:
    """The hazard of one machine or gang: a shape, and weights (sum 1) on rising levels.

    A level is operational (dimensionless) where the hazard falls with age, and a rate an hour where it is constant.
    """

    shape: HazardShape
    levels: tuple[float, ...]
    weights: tuple[float, ...]

    def __hash__(self) -> int:
        """Return the hash of what tells hazards apart: nearly all have the same levels."""
        return hash((self.levels[0], self.weights))

    @classmethod
    def known(cls, rate: float) -> Hazard:
        """Return a constant rate an hour that is known exactly, such as an owner states it."""
        return cls(HazardShape.CONSTANT, (rate,), (1.0,))

    @classmethod
    def lognormal(cls, shape: HazardShape, middle: float, deviation: float) -> Hazard:
        """Return levels that are lognormal about ``middle`` (the median), with this standard deviation of the log."""
        logs = [math.log(level / middle) / max(deviation, _STEP / 2) for level in LEVELS]
        return cls(shape, LEVELS, _normalised([math.exp(-0.5 * x * x) for x in logs]))

    @property
    def mean(self) -> float:
        """Return the mean level."""
        return sum(level * weight for level, weight in zip(self.levels, self.weights, strict=True))

    def quantile(self, probability: float) -> float:
        """Return the level that is not exceeded with this probability, between the points of the grid by the log."""
        if len(self.levels) == 1:
            return self.levels[0]
        total = 0.0
        for i, weight in enumerate(self.weights):
            if total + weight >= probability:
                inside = (probability - total) / weight - 0.5 if weight > 0 else 0.0
                level = self.levels[i]
                return float(level * math.exp(inside * _STEP)) if level > 0 else 0.0
            total += weight
        return self.levels[-1]

    @property
    def interval(self) -> tuple[float, float]:
        """Return the levels that hold four times in five."""
        return self.quantile(LOW), self.quantile(HIGH)

    def at_quantile(self, probability: float) -> Hazard:
        """Return the hazard as if its level were known: the one that is not exceeded with this probability.

        It stays on the same levels: the two next to it share the weight, so that it is their mean.
        """
        if len(self.levels) == 1:
            return self
        level = min(max(self.quantile(probability), self.levels[0]), self.levels[-1])
        above = max(1, bisect_left(self.levels, level))
        low, high = self.levels[above - 1], self.levels[above]
        weights = [0.0] * len(self.levels)
        weights[above] = (level - low) / (high - low)
        weights[above - 1] = 1 - weights[above]
        return Hazard(self.shape, self.levels, tuple(weights))

    def survival(self, hours: float, age: float = 0.0) -> float:
        """Return the probability that a machine of this age is not interrupted in the next ``hours``."""
        x = operational_time(self.shape, hours, age)
        return sum(w * math.exp(-level * x) for level, w in zip(self.levels, self.weights, strict=True))

    def rate_at(self, age: float) -> float:
        """Return the interruptions an hour at this age, given that the machine has lived so long.

        A machine that has grown old is likelier to be of a calm pool: levels count by their chance to have survived.
        """
        x = operational_time(self.shape, age)
        alive = [w * math.exp(-level * x) for level, w in zip(self.levels, self.weights, strict=True)]
        total = sum(alive)
        mean = sum(level * w for level, w in zip(self.levels, alive, strict=True)) / total if total > 0 else 0.0
        return mean if self.shape is HazardShape.CONSTANT else mean / (AGE_SCALE_HOURS + age)

    def rate_over(self, hours: float, level: float | None = None) -> float:
        """Return interruptions an hour of the first ``hours`` of a life, at the mean level or at the one given."""
        mean = self.mean if level is None else level
        return mean * operational_time(self.shape, hours) / hours

    def observed(self, interruptions: float, exposure: float) -> Hazard:
        """Return the posterior after so many interruptions in this operational time; both may be fractions."""
        return self.weighted(lambda level: interruptions * math.log(level) - level * exposure)

    def weighted(self, log_likelihood: Callable[[float], float]) -> Hazard:
        """Return the posterior after evidence of which the log-likelihood is known at each level."""
        logs = [
            math.log(w) + log_likelihood(level) if w > 0 else -math.inf
            for level, w in zip(self.levels, self.weights, strict=True)
        ]
        top = max(logs)
        return Hazard(self.shape, self.levels, _normalised([math.exp(x - top) for x in logs]))

    def scaled(self, factor: float) -> Hazard:
        """Return the hazard with all levels multiplied by ``factor``, above zero.

        On the common grid the weights move instead; what would leave the grid stays at its edge.
        """
        if self.levels != LEVELS:
            return Hazard(self.shape, tuple(level * factor for level in self.levels), self.weights)
        shift = math.log(factor) / _STEP
        whole = math.floor(shift)
        part, moved, last = shift - whole, [0.0] * len(LEVELS), len(LEVELS) - 1
        for i, weight in enumerate(self.weights):
            moved[min(max(i + whole, 0), last)] += weight * (1 - part)
            moved[min(max(i + whole + 1, 0), last)] += weight * part
        return Hazard(self.shape, LEVELS, tuple(moved))

    def blurred(self, deviation: float) -> Hazard:
        """Return the hazard whose level has wandered: its log by a normal of this deviation, on the common grid."""
        last = len(LEVELS) - 1
        reach = range(-last, last + 1)
        bell = {k: math.exp(-0.5 * (k * _STEP / deviation) ** 2) for k in reach}
        total = sum(bell.values())
        moved = [0.0] * len(LEVELS)
        for i, weight in enumerate(self.weights):
            for k in reach:
                moved[min(max(i + k, 0), last)] += weight * bell[k] / total
        return Hazard(self.shape, LEVELS, tuple(moved))


def mix(parts: Sequence[tuple[float, Hazard]]) -> Hazard:
    """Return the mixture of hazards of one shape and the same levels, by their shares (sum 1)."""
    first = parts[0][1]
    columns = zip(*(hazard.weights for _, hazard in parts), strict=True)
    shares = [share for share, _ in parts]
    weights = tuple(sum(s * w for s, w in zip(shares, column, strict=True)) for column in columns)
    return Hazard(first.shape, first.levels, weights)


@lru_cache(maxsize=4096)
def deviation_of(low: float, high: float) -> float:
    """Return the standard deviation of the log of a lognormal whose 80 % interval is given."""
    return math.log(high / low) / _DEVIATIONS_OF_EDGES


def _normalised(weights: Sequence[float]) -> tuple[float, ...]:
    total = sum(weights)
    return tuple(weight / total for weight in weights)
