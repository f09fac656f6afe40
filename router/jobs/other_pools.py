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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
class ChangingRun:
    """A gang that may leave its pool for others, where there are any, or for its fallback as before.

    ``price_ratio`` is that of an hour billed of the fallback over one of the gang, None without a fallback.
    """

    figures: LevelFigures
    hazard: Hazard
    price_ratio: float | None
    others: OtherPools | None

    def expect_staying(self) -> GuardedFigures:
        """Return the expectation of the gang in its own pool, or on its fallback."""
        if self.price_ratio is None:
            return self.figures.expect_variant(self.hazard, 0)
        return self.figures.expect(self.hazard, self.price_ratio)


@dataclass(frozen=True, eq=False, slots=True)
class ChangingFigures:
    """The figures of a gang that may leave its pool for another, of one that stays, and how likely it goes, by window.

    Hours in other pools count as hours of the gang's price. How likely the run is to be late is that of staying.
    """

    figures: GuardedFigures
    staying: GuardedFigures
    changes: Floats


def expect_changes(runs: Sequence[ChangingRun]) -> list[ChangingFigures]:
    """Return the expectations of gangs that may leave their pools; together they take less time."""
    alike: dict[tuple[int, int, bool, bool], dict[int, list[int]]] = {}
    expected: dict[int, ChangingFigures] = {}
    for at, run in enumerate(runs):
        if run.others is None:
            staying = run.expect_staying()
            expected[at] = ChangingFigures(staying, staying, np.zeros(len(run.figures.windows)))
            continue
        windows, alone = run.figures.windows, run.price_ratio is None
        endless = alone or not bool(np.isfinite(windows).all())
        # Those with the same figures follow each other.
        same = alike.setdefault((len(windows), len(run.figures.levels), alone, endless), {})
        same.setdefault(id(run.figures), []).append(at)
    for (_, _, _, endless), by_figures in alike.items():
        places = [at for same in by_figures.values() for at in same]
        together = _ChangingRuns.of([runs[at] for at in places], endless=endless)
        expected.update(zip(places, together.expect(), strict=True))
    return [expected[at] for at in range(len(runs))]


@dataclass(frozen=True, eq=False, slots=True)
class _ChangingRuns:
    """Runs with other pools and as many windows and levels; all have a fallback or none has.

    Those of the same figures follow each other. Arrays are by [run, window, level], figures by [figure, run, window,
    level]; prices are over that of the gang.
    """

    runs: Sequence[ChangingRun]
    others: Sequence[OtherPools]
    weights: Floats
    not_done: Floats
    fallback: Floats
    elsewhere: Floats
    rest: _Rest

    @classmethod
    def of(cls, runs: Sequence[ChangingRun], *, endless: bool) -> _ChangingRuns:
        ratios = [0.0 if run.price_ratio is None else run.price_ratio for run in runs]
        others = [run.others for run in runs if run.others is not None]
        return cls(
            runs=runs,
            others=others,
            weights=np.array([figure_weights(run.hazard) for run in runs]),
            not_done=np.array([run.figures.not_done for run in runs])[:, None],
            fallback=np.array(ratios)[:, None, None],
            elsewhere=np.array([each.price_ratio for each in others])[:, None, None],
            rest=_Rest.of([run.figures for run in runs], endless=endless),
        )

    def expect(self) -> list[ChangingFigures]:
        begun, best = self._begun(), self._cheapest(self.fallback)
        gone = self._gone(begun)
        gone[_SPOT] += (self.elsewhere - 1) * (gone[_SPOT] - begun[_SPOT])
        goes = self.rest.possible & (_usd(gone, self.fallback) < _usd(best, self.fallback) - _LITTLE)
        expected = self._mean(np.where(goes, gone, best))
        # No hour is billed that is not spent: dearer hours elsewhere count as more hours here.
        expected[_ELAPSED] = np.maximum(expected[_ELAPSED], expected[_SPOT])
        changes, staying = self._mean(goes * self.not_done), self._mean(best)
        return [
            ChangingFigures(GuardedFigures(*own), GuardedFigures(*rest), leaves)
            for own, rest, leaves in zip(zip(*expected, strict=True), zip(*staying, strict=True), changes, strict=True)
        ]

    def _gone(self, begun: Floats) -> Floats:
        """Return the figures of gangs that go to another pool, and on from there where that costs less."""
        there = self.fallback / self.elsewhere
        onward = np.array([_next_levels(run.hazard) for run in self.runs]).swapaxes(1, 2)
        shares = np.array([run.figures.remaining_share for run in self.runs])[:, None]
        # What is left is as likely to need the fallback, however little it is.
        remaining = np.where(_IS_CHANCE[:, None, None, None], self.not_done, shares)
        stays = self._cheapest(there)
        least, left = _usd(stays, there) - _LITTLE, np.arange(len(self.runs))
        gone = begun + remaining * self.rest.interpolate(stays @ onward, left)
        for _ in range(_CHANGES - 1):
            goes = (self.rest.possible & (_usd(gone, there) < least))[left]
            some = goes.any(axis=(1, 2))
            left, goes = left[some], goes[some]
            if not left.size:
                break
            values = np.where(goes, gone.take(left, axis=1), stays.take(left, axis=1))
            rest = self.rest.interpolate(values @ onward[left], left)
            gone[:, left] = begun.take(left, axis=1) + remaining.take(left, axis=1) * rest
        return gone

    def _cheapest(self, price_ratios: Floats) -> Floats:
        """Return the figures of the cheapest variant at these prices of the fallback; without one a gang stays."""
        if self.runs[0].price_ratio is None:
            return np.stack([run.figures.variants[:, 0] for run in self.runs], axis=1)
        parts = []
        for _, same in groupby(range(len(self.runs)), key=lambda at: id(self.runs[at].figures)):
            places = list(same)
            parts.append(self.runs[places[0]].figures.cheapest(price_ratios[places, 0, 0]))
        return np.concatenate(parts, axis=1)

    def _mean(self, figures: Floats) -> Floats:
        return np.asarray((figures @ self.weights[:, :, None])[..., 0])

    def _begun(self) -> Floats:
        """Return the figures, by [figure, run, 1, level], of gangs until they go."""
        hits, wasted, delay, share = (
            np.array([getattr(run.figures, name) for run in self.runs])
            for name in ("hits", "wasted", "delay", "remaining_share")
        )
        not_done = self.not_done[:, 0]
        done = (1 - share) * np.array([run.figures.work for run in self.runs])[:, None]
        move_hours = np.array([each.move_hours for each in self.others])[:, None]
        begun = {
            "spot": hits * wasted + done * (1 + _DOUBT) + not_done * move_hours,
            "elapsed": hits * delay + done,
            "interruptions": hits,
            "lost": hits * wasted,
        }
        return np.array([begun.get(name, np.zeros_like(done)) for name in FIGURES])[:, :, None]


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


def _usd(figures: Floats, ratio: Floats) -> Floats:
    return np.asarray(figures[_SPOT] + ratio * figures[_FALLBACK])


@dataclass(frozen=True, eq=False, slots=True)
class _Rest:
    """Between which windows what is left lies when a gang goes: a row, and a share of the next; None for the same.

    Arrays are by [run, window, level].
    """

    row: NDArray[np.intp] | None
    share: Floats
    possible: NDArray[np.bool_]

    @classmethod
    def of(cls, figures: Sequence[LevelFigures], *, endless: bool) -> _Rest:
        """Return where the time that is left lies; without a last moment there is as much as before."""
        windows, delay = np.array([each.windows for each in figures]), np.array([each.delay for each in figures])
        count = windows.shape[1]
        if endless or count == 1:
            shape = (*windows.shape, delay.shape[1])
            return cls(None, np.zeros(shape), np.full(shape, endless))
        after = windows[..., None] - LEAVE_AFTER * delay[:, None]
        row = np.clip((windows[:, :, None, None] <= after[:, None]).sum(axis=1) - 1, 0, count - 2)
        run = np.arange(len(figures))[:, None, None]
        begin, end = windows[run, row], windows[run, row + 1]
        return cls(row, np.clip((after - begin) / (end - begin), 0.0, 1.0), after >= windows[:, :1, None])

    def interpolate(self, figures: Floats, runs: NDArray[np.intp]) -> Floats:
        """Return figures of some runs, by [figure, run, window, level], at what is left."""
        if self.row is None:
            return figures
        _, _, windows, levels = figures.shape
        # Places in a table of runs and windows by level.
        place = (np.arange(len(runs))[:, None, None] * windows + self.row[runs]) * levels + np.arange(levels)
        table = figures.reshape(len(figures), -1)
        near = table.take(place, axis=1)
        return np.asarray(near + (table.take(place + levels, axis=1) - near) * self.share[runs])
