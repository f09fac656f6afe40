"""Expect what a spot gang costs that may leave a bad pool for another one. Pure.

After the third interruption the level of its pool is seen. Where going on elsewhere costs less than the cheapest of the
other variants (:mod:`router.jobs.guarded_run`), the gang goes, and may leave that pool too. What one pool shows says
much of the others: pools of a kind share most of what is doubted of their level (:mod:`pricing.risk_levels`), so that a
gang in a bad pool mostly finds bad ones. With B the hours until it goes, T the time lost by then and L the share of the
work that is left, of which the rest is that share of a run with the same hours to lose,

    V(w, level) = min(C(w, level), B + L * sum over levels' of p(level' | level) V(w - T, level'))

B and L are means over all runs, those that are done before among them; T is lost by those that go. B counts the work
before a little dearer (``_DOUBT``): so well is the rest known.

by window and level, with C the cheapest of the other variants. A short rest loses less than a long run with as many
hours to lose: the cost is a little high. All other pools count as dear as the best of them, and so many changes count
at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from pricing.hazard import Hazard
from pricing.risk_levels import POOL_DEVIATION
from router.jobs.guarded_run import FIGURES, GuardedFigures, LevelFigures, figure_levels, figure_weights
from router.jobs.interruption_sums import LEAVE_AFTER
from router.jobs.renewals import Floats

_CHANGES: Final = 6
_LITTLE: Final = 1e-9
_DOUBT: Final = 0.02  # of the work done before: so well is the cost of the rest known, and no gang goes for nothing
_SPOT, _FALLBACK, _ELAPSED = (FIGURES.index(name) for name in ("spot", "fallback", "elapsed"))
_IS_CHANCE: Final = np.array([name.endswith("_probability") for name in FIGURES])


@dataclass(frozen=True, slots=True)
class OtherPools:
    """Costs of going on in another spot pool, for a gang that leaves its own.

    ``price_ratio`` is what a step costs in the best of them over one here, at least 1; ``move_hours`` what moving there
    costs, in hours of the gang's price.
    """

    price_ratio: float
    move_hours: float


@dataclass(frozen=True, eq=False, slots=True)
class ChangingFigures:
    """The figures of a gang that may leave its pool for another, and how likely it does so, by window."""

    figures: GuardedFigures
    changes: Floats


def expect_changes(
    figures: LevelFigures, hazard: Hazard, price_ratio: float | None, others: OtherPools
) -> ChangingFigures:
    """Return the expectation of a gang that may leave its pool for others, or for its fallback as before.

    ``price_ratio`` is that of an hour billed of the fallback over one of the gang, None without a fallback. Hours in
    other pools count as hours of the gang's price. How likely the run is to be late is that of staying.
    """
    weights, rest, onward = figure_weights(hazard), _Rest.of(figures, alone=price_ratio is None), _next_levels(hazard)
    begun = _begun(figures, others)[:, None]
    # What is left is as likely to need the fallback, however little it is.
    remaining_shares = np.where(_IS_CHANCE[:, None], figures.not_done, figures.remaining_share)[:, None]
    ratio = 0.0 if price_ratio is None else price_ratio
    there = ratio / others.price_ratio
    stays = values = _cheapest(figures, None if price_ratio is None else there)
    least = _usd(stays, there) - _LITTLE
    gone = begun + remaining_shares * rest.interpolate(values @ onward.T)
    for _ in range(_CHANGES - 1):
        goes = rest.possible & (_usd(gone, there) < least)
        if not goes.any():
            break
        values = np.where(goes, gone, stays)
        gone = begun + remaining_shares * rest.interpolate(values @ onward.T)
    gone[_SPOT] += (others.price_ratio - 1) * (gone[_SPOT] - begun[_SPOT])
    best = _cheapest(figures, price_ratio)
    goes = rest.possible & (_usd(gone, ratio) < _usd(best, ratio) - _LITTLE)
    expected = np.where(goes, gone, best) @ weights
    # No hour is billed that is not spent: dearer hours elsewhere count as more hours here.
    expected[_ELAPSED] = np.maximum(expected[_ELAPSED], expected[_SPOT])
    return ChangingFigures(GuardedFigures(*expected), (goes * figures.not_done) @ weights)


@lru_cache(maxsize=4096)
def _next_levels(hazard: Hazard) -> Floats:
    """Return how likely another pool has each level, by [level of this one, level of the other].

    The logs count as normal, with what they do not share being the deviation of pools.
    """
    weights = figure_weights(hazard)
    if len(weights) == 1:
        return np.ones((1, 1))
    logs = np.log(np.maximum(figure_levels(hazard), 1e-12))
    middle = float(logs @ weights)
    variance = float((logs - middle) ** 2 @ weights)
    if variance <= POOL_DEVIATION**2:
        return np.repeat(weights[None], len(weights), axis=0)
    shared = 1 - POOL_DEVIATION**2 / variance
    away = logs - middle
    told = variance * (1 - shared**2)
    odds = away**2 / (2 * variance) - (away - shared * away[:, None]) ** 2 / (2 * told)
    odds = weights * np.exp(odds - odds.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _cheapest(figures: LevelFigures, price_ratio: float | None) -> Floats:
    return figures.variants[:, 0] if price_ratio is None else figures.cheapest(price_ratio)


def _usd(figures: Floats, ratio: float) -> Floats:
    return np.asarray(figures[_SPOT] + ratio * figures[_FALLBACK])


def _begun(figures: LevelFigures, others: OtherPools) -> Floats:
    """Return the figures, by [figure, level], of a gang until it goes."""
    done = (1 - figures.remaining_share) * figures.work
    begun = {
        "spot": figures.hits * figures.wasted + done * (1 + _DOUBT) + figures.not_done * others.move_hours,
        "elapsed": figures.hits * figures.delay + done,
        "interruptions": figures.hits,
        "lost": figures.hits * figures.wasted,
    }
    return np.array([begun.get(name, np.zeros(len(figures.remaining_share))) for name in FIGURES])


@dataclass(frozen=True, eq=False, slots=True)
class _Rest:
    """Between which windows what is left lies when a gang goes, by [window, level]: a row, and a share of the next."""

    row: np.ndarray
    following: np.ndarray | None
    share: Floats
    possible: np.ndarray

    @classmethod
    def of(cls, figures: LevelFigures, *, alone: bool) -> _Rest:
        """Return where the time that is left lies; without a last moment there is as much as before."""
        windows, count = figures.windows, len(figures.windows)
        shape, endless = (count, len(figures.remaining_share)), alone or not np.isfinite(windows).all()
        if endless or count == 1:
            same = np.repeat(np.arange(count)[:, None], shape[1], axis=1)
            return cls(same, None, np.zeros(shape), np.full(shape, endless))
        after = windows[:, None] - LEAVE_AFTER * figures.delay
        row = np.clip(np.searchsorted(windows, after, side="right") - 1, 0, count - 2)
        share = np.clip((after - windows[row]) / (windows[row + 1] - windows[row]), 0.0, 1.0)
        return cls(row, row + 1, share, after >= windows[0])

    def interpolate(self, figures: Floats) -> Floats:
        """Return figures by [figure, window, level] at what is left."""
        levels = np.arange(figures.shape[2])
        near = figures[:, self.row, levels]
        if self.following is None:
            return np.asarray(near)
        return np.asarray(near + (figures[:, self.following, levels] - near) * self.share)
