"""Sum over interruptions what gangs on spot have done and lost when they need their fallback. Pure.

Each interruption loses a wait for machines and min(X, a) of the life X. With B_n the probability that n of them lose at
most the slack, a gang falls after the n-th with probability B_{n-1} - B_n, if it is not done by then
(:mod:`router.jobs.renewals`); one that leaves its pool does so at the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing.hazard import HazardShape
from router.jobs.pool_waits import counts_within, sum_within, sums_within
from router.jobs.renewals import COUNTS, Floats, kept_work

#: Interruptions after which a pool is left where that costs less than staying.
LEAVE_AFTER: Final = 3
NOTHING: Final = 1e-9
_UNFINISHED: Final = 0.02  # share of work left after the last count, from which the rest goes on in proportion
_COUNTS: Final = COUNTS.astype(np.float64)
# How many counts each of the tables stands for, how far their mean is from the one before, and what is left of a step.
_STEPS: Final = np.diff(np.concatenate([[0], COUNTS])).astype(np.float64)
_LEAD: Final = (_STEPS + 1) / (2 * _STEPS)
_SKIPPED: Final = (1 - 1 / _STEPS) / 2
_SINGLE: Final = int((_STEPS == 1).sum())  # first counts that stand for themselves


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums over interruptions by [..., speed, window, level], where the run begins at all.

    ``hits`` are the interruptions, ``probability`` is that of needing the fallback, ``last_moment`` with too little
    time to lose it once; ``remaining`` is the work left then, ``early`` the interruptions before.
    """

    hits: Floats
    probability: Floats
    last_moment: Floats
    remaining: Floats
    early: Floats


@dataclass(frozen=True, eq=False, slots=True)
class SpotRuns:
    """Runs of gangs on spot at several speeds, whose pools have the same waits.

    The windows of all runs follow each other: ``spans`` are those of each run. ``works`` are the hours by [speed, run],
    ``wastes`` the first hours of each life that leave nothing, ``losses`` what of them was done before, and ``starts``
    the hours until a fallback begins. ``wasted`` is by [run, level] the mean of min(X, a).
    """

    shape: HazardShape
    levels: Floats
    recovery: float
    spans: Sequence[slice]
    works: Floats
    wastes: Floats
    losses: Floats
    starts: Floats
    wasted: Floats

    def sums(self, slack: Floats) -> Sums:
        """Return sums by [variant, speed, window, level].

        Gangs wait until the slack, by [share bridged, speed, window], is lost: the variants are that of the first
        share, that of a gang that leaves its pool instead, and those of the other shares.
        """
        # Runs that differ in nothing but how fast or dear their fallbacks are have the same sums.
        numbers: dict[tuple[object, ...], int] = {}
        keys = [
            (
                self.works[:, run].tobytes(),
                self.wastes[run],
                self.losses[run],
                self.starts[run],
                slack[0, :, span].tobytes(),
            )
            for run, span in enumerate(self.spans)
        ]
        same = [numbers.setdefault(key, len(numbers)) for key in keys]
        first = [same.index(number) for number in range(len(numbers))]
        columns = [np.arange(self.spans[run].start, self.spans[run].stop) for run in first]
        distinct = self._select(first)
        sums = _sums_of(distinct, slack[:, :, np.concatenate(columns)])
        place = [np.arange(distinct.spans[number].start, distinct.spans[number].stop) for number in same]
        return Sums(*sums.take(np.concatenate(place), axis=3))

    def _select(self, runs: Sequence[int]) -> SpotRuns:
        ends = np.cumsum([0, *(self.spans[run].stop - self.spans[run].start for run in runs)]).tolist()
        return replace(
            self,
            spans=[slice(begin, end) for begin, end in pairwise(ends)],
            works=self.works[:, runs],
            wastes=self.wastes[runs],
            losses=self.losses[runs],
            starts=self.starts[runs],
            wasted=self.wasted[runs],
        )


def _sums_of(runs: SpotRuns, slack: Floats) -> Floats:
    """Return by [sum, variant, speed, window, level] the sums of runs that all differ."""
    lasts = counts_within(np.array([slack[0, :, span].max(axis=1) for span in runs.spans]).T, runs.recovery)
    lives = _CountedLives.of(runs, lasts)
    sums = np.empty((len(fields(Sums)), 1 + len(slack), *slack.shape[1:], len(runs.levels)))
    sums[:, 1] = lives.leaving(slack[0])
    for run, span in enumerate(runs.spans):
        for speed in range(len(runs.works)):
            waiting = lives.waiting(speed, run, slack[:, speed, span])
            sums[:, 0, speed, span], sums[:, 2:, speed, span] = waiting[:, 0], waiting[:, 1:]
    sums *= begins_on_spot(slack[0])[..., None]
    return sums


def begins_on_spot(slack: Floats) -> Floats:
    """Return 1 where the window is long enough to begin on spot at all."""
    return np.asarray((slack >= -NOTHING).astype(np.float64))


@dataclass(frozen=True, eq=False, slots=True)
class _CountedLives:
    """The progress of runs after each of the first counts of lives.

    By [speed, run, level, count], where a count of the tables stands for several: ``steps`` are those that find the
    work not done, ``fallen`` what those have that fall there: the probability that the work is not done, the work that
    is left and the interruptions before. More than ``lasts``, by [speed, run], lose more than the slack.
    """

    runs: SpotRuns
    lasts: NDArray[np.int64]
    remaining_shares: Floats
    steps: Floats
    fallen: Floats

    @classmethod
    def of(cls, runs: SpotRuns, lasts: NDArray[np.int64]) -> _CountedLives:
        last = max(int(lasts.max()), LEAVE_AFTER)
        works = runs.works
        ends = np.maximum(works - runs.losses, works / 2)  # the last save need not be made
        kept = kept_work(runs.shape, runs.levels, ends, runs.wastes, last)
        # Counts between those of the tables are interpolated: a step of d lives has a mean of the later ones.
        lead, ends, whole = _LEAD[:last], ends[..., None, None], works[..., None, None]
        going = _along(kept.not_done, lead, np.ones_like(whole))
        over = _along(kept.remaining_share * ends + kept.not_done * (whole - ends), lead, whole)
        return cls(
            runs, lasts, kept.remaining_share, going * _STEPS[:last], np.array([going, over, going * _EARLY[:last]])
        )

    def waiting(self, speed: int, run: int, slack: Floats) -> Floats:
        """Return by [sum, share, window, level] the sums of a run at one speed that begins and waits."""
        last, own_last = int(self.lasts[:, run].max()), int(self.lasts[speed, run])
        steps, fallen = self.steps[speed, run, :, :last], self.fallen[:, speed, run, :, :last]
        some = slack > 0 if self.runs.recovery > 0 else slack >= 0
        rows = slack[some]
        sums = np.empty((len(fields(Sums)), len(rows) + 1, len(steps)))
        # Who has nothing to lose falls at the first interruption: the sums of all of these stand last.
        sums[:, -1] = steps[:, 0], *fallen[[0, 0, 1, 2], :, 0]
        if len(rows):
            sums[:, :-1] = self._sums_of_rows(speed, run, rows, last, own_last)
        return sums.take(np.where(some, np.cumsum(some).reshape(some.shape) - 1, -1), axis=1)

    def _sums_of_rows(self, speed: int, run: int, slack: Floats, last: int, own_last: int) -> Floats:
        """Return by [sum, row, level] the sums of a run at one speed, by what it may lose."""
        room = slack[:, None, None] - _COUNTS[:last] * self.runs.wasted[run][:, None]
        allowed = sums_within(room, self.runs.recovery, last)
        before = np.empty_like(allowed)
        before[..., 0], before[..., 1:] = 1.0, allowed[..., :-1]
        if own_last < last:
            before[..., own_last:] = allowed[..., own_last:] = 0.0
        falls = before - allowed
        tried = falls * np.broadcast_to(_SKIPPED[:last], room.shape[1:]).copy()
        np.subtract(before, tried, out=tried)
        tried *= self.steps[speed, run, :, :last]
        needed, over, early = np.einsum("rln,fln->frl", falls, self.fallen[:, speed, run, :, :last])
        sums = np.array([tried.sum(axis=-1), needed, needed, over, early])
        return self._beyond(speed, run, sums, slack, allowed[..., own_last - 1])

    def _beyond(self, speed: int, run: int, sums: Floats, slack: Floats, allowed: Floats) -> Floats:
        """Return the sums where more lives are needed and allowed than are counted: the work goes on in proportion.

        ``allowed`` is the probability that the slack lasts for the last count.
        """
        last = int(self.lasts[speed, run]) - 1
        left_over = self.remaining_shares[speed, run, :, last]
        beyond = (left_over > _UNFINISHED) & (allowed > _UNFINISHED)
        if not beyond.any():
            return sums
        affordable = np.maximum(slack, 0.0)[:, None] / (self.runs.wasted[run] + self.runs.recovery)
        needed = _COUNTS[last] / np.maximum(1 - left_over, 1e-12)
        lives, short = np.minimum(needed, affordable), (affordable < needed).astype(np.float64)
        remaining = self.runs.works[speed, run] * np.maximum(0.0, 1 - lives / needed)
        return np.where(beyond, np.array([lives, short, short, remaining, lives * short]), sums)

    def leaving(self, slack: Floats) -> Floats:
        """Return by [sum, speed, window, level] the sums of gangs that begin and leave.

        Who leaves after the third interruption falls where else the third would be followed by a fourth life. Where
        fewer matter at any speed, the gang leaves after these.
        """
        run_of = np.repeat(np.arange(len(self.runs.spans)), [span.stop - span.start for span in self.runs.spans])
        numbers, wasted = np.arange(1, LEAVE_AFTER + 1), self.runs.wasted[run_of]
        own = self.lasts[:, run_of, None, None]
        hits = np.minimum(LEAVE_AFTER, own.max(axis=0))
        room = slack[..., None, None] - _COUNTS[: LEAVE_AFTER - 1] * wasted[..., None]
        allowed = sums_within(room, self.runs.recovery, LEAVE_AFTER - 1)
        before = np.ones((*allowed.shape[:-1], LEAVE_AFTER))
        before[..., 1:] = allowed
        falls = before.copy()
        falls[..., :-1] -= allowed
        if own.min() < LEAVE_AFTER:
            before *= numbers <= np.minimum(own, hits)
            allowed *= numbers[:-1] <= np.minimum(own, hits - 1)
            falls = before.copy()
            falls[..., :-1] -= allowed
        spare = self._spare_time_probability(slack, run_of, hits[..., 0])
        last_moment = falls.copy()
        for number in numbers:
            missed = np.minimum(spare, falls[..., number - 1])
            last_moment[..., number - 1] -= missed * (hits[..., 0] == number)
        steps = self.steps[:, run_of, :, :LEAVE_AFTER]
        going, over, _ = self.fallen[:, :, run_of, :, :LEAVE_AFTER]
        needed, late, left, early = (
            np.einsum("swln,swln->swl", each, table)
            for each, table in ((falls, going), (last_moment, going), (falls, over), (falls, going * numbers))
        )
        return np.array([(before * steps).sum(axis=-1), needed, late, left, early])

    def _spare_time_probability(self, slack: Floats, run_of: NDArray[np.intp], hits: NDArray[np.int64]) -> Floats:
        """Return the probability that so many interruptions, by [window, 1], leave time to lose the fallback once."""
        lost = hits * self.runs.wasted[run_of]
        room = slack[..., None] - self.runs.starts[run_of, None] - self.runs.losses[run_of, None] - lost
        waiting = sum_within(room, self.runs.recovery, np.maximum(hits - 2, 0))
        return np.where(hits > 1, waiting, room >= 0)


def _along(figures: Floats, lead: Floats, first: Floats) -> Floats:
    """Return the mean of each figure over the counts that its last axis stands for; ``first`` is that of no lives."""
    before = np.concatenate([np.broadcast_to(first, (*figures.shape[:-1], 1)), figures[..., :-1]], axis=-1)
    return np.asarray(before + (figures - before) * lead)


#: Interruptions before each count, as a mean over the counts that it stands for.
_EARLY: Final = _along(_COUNTS, _LEAD, np.zeros(1))
