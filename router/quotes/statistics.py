"""Statistics of a simulation as a quote states them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import NANOS_PER_CENT, Usd
from router.quotes.quote import LEVELS, Likely
from router.spot.availability.calibration import Recalibration
from router.spot.simulator.traces import Floats

_AS_THEY_ARE: Final = Recalibration()
_Z95: Final = 1.959964
_MOST_USD: Final = 1e13


@dataclass(frozen=True, slots=True)
class QuoteLevels:
    """The levels at which the draws of a cost and of a finish are read.

    They are the quoted levels themselves or, where earlier quotes did not hold as often as they said, other ones.
    """

    cost: Recalibration = _AS_THEY_ARE
    finish: Recalibration = _AS_THEY_ARE


def to_usd(amount: float) -> Usd | None:
    """Return the amount to the cent; None for one without end."""
    if not math.isfinite(amount) or amount > _MOST_USD:
        return None
    return Usd(round(amount * 100) * NANOS_PER_CENT)


def quantiles(values: Floats, levels: Sequence[float]) -> Floats:
    """Return quantiles that are values themselves, none between two: some may be infinite."""
    amounts: Floats = np.quantile(values, levels, method="inverted_cdf")
    return amounts


def summarise_usd(values: Floats) -> Likely:
    """Return the distribution of these dollars."""
    p50, p90 = quantiles(values, (0.5, 0.9))
    return Likely(to_usd(float(p50)), to_usd(float(p90)), to_usd(float(values.mean())))


def mean_error(values: Floats) -> float:
    """Return half of the 95 % interval of the mean, of independent draws by the normal distribution."""
    return _Z95 * float(values.std()) / math.sqrt(values.size) if np.isfinite(values).all() else math.inf


def usd_quantiles(values: Floats) -> tuple[Usd | None, ...]:
    """Return the amounts at the levels of a quote."""
    return tuple(to_usd(float(v)) for v in quantiles(values, LEVELS))


def to_moment(start: datetime, seconds: float) -> datetime | None:
    """Return the time ``seconds`` after the start; None for never."""
    if not math.isfinite(seconds):
        return None
    return start + timedelta(seconds=round(seconds))


def wilson_interval(share: float, draws: int) -> tuple[float, float]:
    """Return the 95 % interval of a share seen in ``draws`` draws: Wilson (JASA 22, 1927)."""
    z2 = _Z95**2 / draws
    centre, half = share + z2 / 2, _Z95 * math.sqrt(share * (1 - share) / draws + z2 / (4 * draws))
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))


def find_knee(hours: Sequence[float], dollars: Sequence[float]) -> int | None:
    """Return the index of the point farthest below the line from the first to the last.

    Both axes are scaled to one. None where none is below it, or there are fewer than three points. Hours rise.
    """
    if len(hours) < 3 or not all(map(math.isfinite, dollars)):
        return None
    x, y = np.array(hours), np.array(dollars)
    fall = y[0] - y[-1]
    if fall <= 0:
        return None
    below = 1 - (x - x[0]) / (x[-1] - x[0]) - (y - y[-1]) / fall
    best = int(np.argmax(below))
    return best if below[best] > 1e-9 else None
