"""Fits of our policy at the spot prices that were seen: it is fitted anew where they moved.

A spot price is close to a martingale: its present value says more of the hours ahead than its usual one. So spot,
waiting and on-demand alike are computed at present prices, and a price that is gone is not waited for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from router.spot.policies.action_values import ActionValues
from router.spot.policies.foresight import ForesightModel
from router.spot.simulator.traces import Floats, Ints

MOVES: Final = 0.02  # share of a price that a fit may be off
MOST: Final = 16  # fits of some ten MB each; further prices use the nearest of them


class PriceFits:
    """Models of one hazard model and market, each at spot prices that were seen while it was played."""

    def __init__(self, first: ForesightModel) -> None:
        self.weighers: list[ActionValues] = []
        self._usd = np.empty((0, len(first.spots)))
        self._first = first
        self._add(ActionValues(first))

    def __getitem__(self, which: int) -> ActionValues:
        """Return the action values of the fit of that number."""
        return self.weighers[which]

    def fits(self, spot_usd: Floats, before: Ints) -> Ints:
        """Return for each window the number of the fit at its prices [zone, window].

        It is the one ``before`` (-1: none) until a price has moved by more than 2 %, then the nearest where that is
        within 2 % of all of them, or else a new one.
        """
        usd = spot_usd[self._first.spots].T
        deviation = np.abs(usd / self._usd[before] - 1).max(axis=1, initial=0.0)
        numbers = before.copy()
        for row in np.flatnonzero((before < 0) | (deviation > MOVES)):
            distance = np.abs(usd[row] / self._usd - 1).max(axis=1, initial=0.0)
            near = distance.min() <= MOVES or len(self.weighers) == MOST
            numbers[row] = (
                distance.argmin() if near else self._add(_solve_at_prices(self._first, spot_usd[:, row].tobytes()))
            )
        return numbers

    def _add(self, weigher: ActionValues) -> int:
        model = weigher.model
        self.weighers.append(weigher)
        self._usd = np.concatenate([self._usd, model.market.spot_usd[None, model.spots]])
        return len(self.weighers) - 1


@lru_cache(maxsize=MOST)
def _solve_at_prices(first: ForesightModel, spot_usd: bytes) -> ActionValues:
    """Return the action values of the model at these prices.

    A running job is decided by a session that begins anew each time, and sees the same past prices each time.
    """
    return ActionValues(first.at_prices(np.frombuffer(spot_usd)))
