"""Rates at which a gang on spot is lost, by the age of its life, before its pool is observed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pricing.hazard import deviation_of, operational_time
from pricing.risk import GangRisk

AGES_H: Final = (0.5, 2.0, 8.0)  # where one class of age ends and the next begins
CLASSES: Final = len(AGES_H) + 1
NEVER_PER_HOUR: Final = 1e-5
_OLDEST_H: Final = 48.0  # the last class of age counts at its mean rate up to here


@dataclass(frozen=True, slots=True)
class LossRates:
    """Mean rates of losses an hour, by class of age, before a pool is observed; and how sure they are.

    ``spread`` is the standard deviation of the logarithm of their common level.
    """

    per_hour: tuple[float, ...]
    spread: float

    @classmethod
    def of(cls, risk: GangRisk) -> LossRates:
        """Return the loss rates of a gang from its interruption risk."""
        mean, shape = risk.hazard.mean, risk.hazard.shape
        edges = pairwise((0.0, *AGES_H, _OLDEST_H))
        rates = (mean * operational_time(shape, end - start, start) / (end - start) for start, end in edges)
        low, high = risk.hazard.interval
        spread = deviation_of(low, high) if 0 < low < high else 0.0
        return cls(tuple(max(rate + risk.hardware_per_hour, NEVER_PER_HOUR) for rate in rates), spread)

    @classmethod
    def flat(cls, per_hour: float, spread: float = 0.8) -> LossRates:
        """Return a rate that is the same at every age."""
        return cls((per_hour,) * CLASSES, spread)
