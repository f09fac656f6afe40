"""Recalibration of forecasts: levels moved by how often earlier forecasts of the same kind held.

A forecast's p-quantile is quoted as the value below which outcomes lie with probability p only if p of them did. Where
they did not, another level of the forecast is read, the one below which p of the past outcomes lay (Kuleshov, Fenner
and Ermon, ICML 2018), shrunk towards p itself as far as the past is short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.availability.calibration import PitIntervals
from router.spot.simulator.bootstrap import bootstrap_interval
from router.spot.simulator.traces import Floats, Ints

TRUST: Final = 20.0  # number of outcomes whose weight an unadjusted forecast has
_TAIL: Final = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05)
KNOTS: Final = (*_TAIL, *(round(0.05 * i, 2) for i in range(2, 19)), *(round(1 - p, 3) for p in reversed(_TAIL)))


@dataclass(frozen=True, slots=True)
class Recalibration:
    """A map from promised levels to the levels of a forecast to read.

    ``held`` is the share of outcomes within each of the levels ``KNOTS`` of their forecasts; it grows. Raise ValueError
    where it does not grow, or does not go from 0 to 1.
    """

    held: tuple[float, ...] = KNOTS

    def __post_init__(self) -> None:
        shares = np.array(self.held)
        if shares.size != len(KNOTS) or shares[0] != 0 or shares[-1] != 1 or (np.diff(shares) <= 0).any():
            raise ValueError(f"give {len(KNOTS)} shares that grow from 0 to 1")

    @classmethod
    def learned(cls, places: PitIntervals, groups: Ints, trust: float = TRUST) -> Recalibration:
        """Return the map learned from forecasts that did not see their outcomes.

        Outcomes of a group depend on each other: the effective count follows from the interval of the share within the
        middle level, and is at most the number of groups. Without outcomes, forecasts are read as they are.
        """
        if not places.below.size:
            return cls()
        level = np.array(KNOTS)
        count = min(bootstrap_interval(places.within(0.5), groups).effective, float(np.unique(groups).size))
        seen = np.array([float(places.within(p).mean()) for p in KNOTS])
        held = (trust * level + count * seen) / (trust + count)
        held[0], held[-1] = 0.0, 1.0
        return cls(tuple(held.tolist()))

    def level(self, p: Floats) -> Floats:
        """Return the level of a forecast to quote for ``p``."""
        levels: Floats = np.interp(p, np.array(self.held), np.array(KNOTS))
        return levels

    def quoted(self, values: Floats) -> Floats:
        """Return by [..., value] the equally likely values of a quote, in order, from those of a forecast."""
        count = values.shape[-1]
        at = self.level((np.arange(count) + 0.5) / count)
        which = np.clip(np.ceil(at * count).astype(np.int64) - 1, 0, count - 1)
        values_quoted: Floats = np.sort(values, axis=-1)[..., which]
        return values_quoted
