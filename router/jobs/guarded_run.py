"""A spot gang under the deadline guard: what it costs, when it is done, how much of it ends on demand. Pure.

The policy: start on one pool; after an interruption restart in place as soon as it has machines again; on demand, at a
named fallback, at the last moment at which that is still in time. Two variants of it may cost less, by the level of the
hazard, which the first lives show: leaving the pool after :data:`LEAVE_AFTER` interruptions, and bridging: with a share
of the slack left the run works on the fallback while the pool has no machines, and goes back when it has.

With slack S (the time allowed less the work and the fallback's start) the guard acts when the hours lost exceed S.
Hours are lost only at interruptions: the wait for machines (:mod:`router.jobs.pool_waits`), and min(X, a) of each
life X, where a is start-up and lost work. So with P_n the work kept after n lives and B_n the probability that n
interruptions lose at most S,

    hours of work left for the fallback = sum over n of (B_{n-1} - B_n) E[max(W - P_n, 0); not done after n lives]

and likewise all else (router.jobs.renewals has P_n). A run that bridges a share of S does so from when the rest is
lost; then it is counted in means: each interruption takes the fallback's start and min(X, a) from that share, and
brings the work of a life and of a wait. All holds at each level of the hazard; what is not known of the level is
integrated by its weights, and the error of the speed on three points. ``tests/property/test_guarded_run.py`` holds it
against a simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing.hazard import AGE_SCALE_HOURS, LEVELS, Hazard, HazardShape
from router.jobs.goodput import ndtr, run_share
from router.jobs.pool_waits import (
    REMAINING_POINTS,
    WAIT_POINTS,
    counts_within,
    mean_square_wait_within,
    mean_wait_within,
    sums_within,
)
from router.jobs.renewals import COUNTS, Floats, kept_work

#: Interruptions after which a pool is left where that costs less than staying.
LEAVE_AFTER: Final = 3
#: Shares of the slack that a run may keep for bridging.
BRIDGED_SHARES: Final = (0.25, 0.5, 1.0)
# Gauss-Hermite points of a normal error: exact for polynomials of degree five.
_ERRORS: Final = ((-math.sqrt(3.0), 1 / 6), (0.0, 2 / 3), (math.sqrt(3.0), 1 / 6))
_NOTHING: Final = 1e-9
_UNFINISHED: Final = 0.02  # share of work left after the last count, from which the rest goes on in proportion
_LIFE_PARTS: Final = 6  # into which the life of a gang that runs already is parted
_LONGEST_SPELL: Final = 72.0  # hours: what a pool that keeps its machines longer is taken to keep them
_SURE_SPEED: Final = 0.06  # relative errors up to this hardly matter to an expectation
_STEPS: Final = np.diff(np.concatenate([[0], COUNTS])).astype(np.float64)


@dataclass(frozen=True, slots=True)
class GuardedWork:
    """The work of a job on one gang, and its fallback. All times in hours.

    ``work`` is the run time that the gang needs without interruptions, stalls of checkpoints included;
    ``relative_error`` that of its speed. ``restart`` is billed and ``recovery`` is not (its mean); ``loss`` is the work
    that an interruption loses. ``hardware`` is the rate of failures an hour. ``fallback_ratio`` is how long the
    fallback takes for an hour of ``work``, None without one; ``fallback_start``, billed, is how long it takes to begin,
    and ``margin`` how much before its last moment it does.
    """

    work: float
    relative_error: float
    restart: float
    recovery: float
    loss: float
    hardware: float
    fallback_ratio: float | None = None
    fallback_start: float = 0.0
    margin: float = 0.0

    @property
    def least_window(self) -> float:
        """Return the least window in which the fallback, begun at once, is done at the expected speed."""
        if self.fallback_ratio is None:
            return self.work
        return self.margin + self.fallback_start + self.work * max(1.0, self.fallback_ratio)


@dataclass(frozen=True, eq=False, slots=True)
class GuardedFigures:
    """Expected hours of guarded runs, by window.

    ``spot`` and ``fallback`` are hours billed of the gang, beyond its first start-up, and of the fallback;
    ``fallback_probability`` is how often that is needed, ``last_moment_probability`` how often it begins with too
    little time left to lose it once. ``elapsed`` is the time from the first start-up to the end, ``interruptions``
    their number, ``lost`` the billed hours that interruptions cost.
    """

    spot: Floats
    fallback: Floats
    fallback_probability: Floats
    last_moment_probability: Floats
    elapsed: Floats
    interruptions: Floats
    lost: Floats


#: Names of the figures, in the order in which arrays have them.
FIGURES: Final = tuple(each.name for each in fields(GuardedFigures))
_SPOT, _FALLBACK = FIGURES.index("spot"), FIGURES.index("fallback")


@dataclass(frozen=True, eq=False, slots=True)
class LevelFigures:
    """Figures at each level of the hazard, of each variant of the policy.

    ``variants`` are by [figure, variant, window, level]; the figures are those of :class:`GuardedFigures` in their
    order, the variants a gang that stays in its pool, one that leaves it, and those that bridge each of
    :data:`BRIDGED_SHARES`, the last where there is a fallback.
    """

    levels: Floats
    variants: Floats
    windows: Floats
    work: float
    # Of LEAVE_AFTER lives, or of fewer until the work is done, by level: the share of the work that is left, how likely
    # any is, how many of them end by an interruption; and the hours that one of these is billed for nothing, and loses.
    remaining_share: Floats
    not_done: Floats
    hits: Floats
    wasted: Floats
    delay: Floats

    def expect(self, hazard: Hazard, price_ratio: float) -> GuardedFigures:
        """Return the expectation over the hazard, by the cheapest variant at each level.

        ``price_ratio`` is that of an hour billed of the fallback over one of the gang.
        """
        return GuardedFigures(*(self.cheapest(price_ratio) @ figure_weights(hazard)))

    def cheapest(self, price_ratio: float) -> Floats:
        """Return the figures of the cheapest variant by [figure, window, level]."""
        cheapest = np.argmin(self.variants[_SPOT] + price_ratio * self.variants[_FALLBACK], axis=0)
        return np.asarray(np.take_along_axis(self.variants, cheapest[None, None], axis=1)[:, 0])

    def expect_variant(self, hazard: Hazard, which: int) -> GuardedFigures:
        """Return the expectation where one variant is followed at all levels."""
        return GuardedFigures(*(self.variants[:, which] @ figure_weights(hazard)))


def figure_levels(hazard: Hazard) -> tuple[float, ...]:
    """Return the levels at which figures are computed: every second one of the common grid."""
    return LEVELS[::2] if hazard.levels == LEVELS else hazard.levels


@lru_cache(maxsize=4096)
def figure_weights(hazard: Hazard) -> Floats:
    """Return the weights of these levels: one between two of them counts half for each."""
    weights = np.array(hazard.weights)
    if hazard.levels != LEVELS:
        return weights
    shared = np.zeros(len(LEVELS[::2]))
    shared += weights[::2]
    shared[:-1] += weights[1::2] / 2
    shared[1:] += weights[1::2] / 2
    return np.asarray(shared)


def level_figures(run: GuardedWork, shape: HazardShape, levels: tuple[float, ...], windows: Floats) -> LevelFigures:
    """Return figures by [window, level]; windows are hours allowed after the first start-up (inf: no deadline).

    Where a window is too short for the fallback, all of the work is on the fallback, from the beginning.
    """
    grid = np.array(levels)
    works, shares = _works(run)
    wasted = _mean_waste(shape, grid, run.restart + run.loss)
    figures = _RunsAtSpeeds(run, works, shape, grid, windows, wasted).variants()
    expected = np.tensordot(figures, shares, axes=([2], [0]))
    kept = kept_work(shape, grid, run.work, run.restart + run.loss, LEAVE_AFTER)
    return LevelFigures(
        levels=grid,
        variants=expected,
        windows=windows,
        work=run.work,
        remaining_share=kept.remaining_share[:, -1],
        not_done=kept.not_done[:, -1],
        hits=kept.not_done.sum(axis=1),
        wasted=wasted,
        delay=wasted + run.recovery,
    )


def _works(run: GuardedWork) -> tuple[Floats, Floats]:
    """Return the hours of work at some speeds, and how likely each is."""
    points = _ERRORS if run.relative_error > _SURE_SPEED else ((0.0, 1.0),)
    works = run.work * np.array([float(run_share(run.relative_error, z)) for z, _ in points])
    return works, np.array([share for _, share in points])


def started_figures(run: GuardedWork, shape: HazardShape, levels: tuple[float, ...], windows: Floats) -> LevelFigures:
    """Return the figures of a gang that is asked for at any moment: its pool may have no machines then.

    How often it has none follows from the lengths of lives and waits; what is left of such a wait goes first.
    """
    if run.recovery <= 0:
        return level_figures(run, shape, levels, windows)
    waits = np.array([run.recovery * wait for wait, _ in REMAINING_POINTS])
    later = windows - waits[:, None]
    # All windows that are too short for the gang have the same figures, but for the time until the end.
    works, _ = _works(run)
    least = run.fallback_start + run.margin + works.min() * max(1.0, run.fallback_ratio or 1.0)
    begins = later >= least - _NOTHING
    each, place = np.unique(np.concatenate([windows, np.where(begins, later, 0.0).ravel()]), return_inverse=True)
    figures = level_figures(run, shape, levels, each)
    now, rest = np.split(figures.variants[:, :, place], [len(windows)], axis=2)
    rest = rest.reshape(*rest.shape[:2], *later.shape, -1)
    elapsed = rest[FIGURES.index("elapsed")]
    late = np.maximum(later - run.fallback_start / 2, run.work)
    elapsed[:] = np.where(begins[None, :, :, None], elapsed, late[None, :, :, None]) + waits[:, None, None]
    up = _lived(shape, figures.levels, 0.0, np.array(_LONGEST_SPELL))[0]
    down = run.recovery / (run.recovery + up)
    shares = np.array([share for _, share in REMAINING_POINTS])
    found = now * (1 - down) + np.einsum("fvdwl,d->fvwl", rest, shares) * down
    return replace(figures, variants=found, windows=windows)


def aged_figures(
    run: GuardedWork, shape: HazardShape, levels: tuple[float, ...], windows: Floats, age: float
) -> LevelFigures:
    """Return the figures of a gang that has run for ``age`` hours; its first start-up is over.

    Its first life is longer than the others: P(X > t) = (1 + t/(c + age))^-level. The moments at which it may end are
    parted into a few of equal operational time; what is left then goes on as a run from the beginning.
    """
    fresh = level_figures(run, shape, levels, windows)
    if shape is HazardShape.CONSTANT or age <= 0:
        return fresh
    scale, grid = AGE_SCALE_HOURS + age, np.array(levels)
    edges = scale * np.expm1(np.log1p(run.work / scale) * np.arange(_LIFE_PARTS + 1) / _LIFE_PARTS)
    survival = (1 + edges[:, None] / scale) ** -grid
    # At the least level hardly any life ends before the work does.
    found = fresh.variants[..., :1] * survival[-1]
    waits = [run.recovery * wait for wait, _ in WAIT_POINTS] if run.recovery > 0 else [0.0]
    shares = np.array([share for _, share in WAIT_POINTS] if run.recovery > 0 else [1.0])
    for at in range(_LIFE_PARTS):
        lived = float(edges[at] + edges[at + 1]) / 2
        lost, takes = min(lived, run.loss), lived + run.restart
        left = replace(run, work=run.work - lived + lost)
        rest = np.concatenate([windows - takes - wait for wait in waits])
        figures = level_figures(left, shape, levels, rest).variants
        figures = np.moveaxis(figures.reshape(*figures.shape[:2], len(waits), len(windows), -1), 2, -1) @ shares
        more = {"spot": takes, "elapsed": takes + run.recovery, "interruptions": 1.0, "lost": lost + run.restart}
        for name, hours in more.items():
            figures[FIGURES.index(name)] += hours
        found = found + figures * (survival[at] - survival[at + 1])
    return replace(fresh, variants=found)


@dataclass(frozen=True, eq=False, slots=True)
class _Sums:
    """Sums over interruptions by [share bridged, speed, window, level], where the run begins at all."""

    hits: Floats
    probability: Floats
    last_moment: Floats
    remaining: Floats
    early: Floats

    def beside(self, other: _Sums) -> _Sums:
        """Return these sums followed by others, along the first axis."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(_Sums))
        return _Sums(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, eq=False, slots=True)
class _RunsAtSpeeds:
    """Runs at several speeds: ``works`` are the hours at each; ``wasted`` is by level the mean of min(X, a).

    Its arrays are by [share bridged, speed, window, level].
    """

    run: GuardedWork
    works: Floats
    shape: HazardShape
    levels: Floats
    windows: Floats
    wasted: Floats

    @property
    def _work(self) -> Floats:
        return self.works[None, :, None, None]

    @property
    def _begun(self) -> Floats:
        """Return 1 where the window is long enough to begin on spot at all."""
        return np.asarray((self._slack() >= -_NOTHING).astype(np.float64)[None, :, :, None])

    def _slack(self) -> Floats:
        """Return the hours by [speed, window] that may be lost before the fallback has to begin."""
        least = self.works * max(1.0, self.run.fallback_ratio or 1.0)
        return np.asarray(self.windows - self.run.fallback_start - self.run.margin - least[:, None])

    def variants(self) -> Floats:
        """Return the figures by [figure, variant, speed, window, level]."""
        slack = self._slack()
        spare = np.where(np.isfinite(slack), np.maximum(slack, 0.0), 0.0)
        shares = () if self.run.fallback_ratio is None else BRIDGED_SHARES
        kept = np.array([0.0, *shares])[:, None, None] * spare
        waiting, leaving = self.sums(slack - kept)
        figures = self.figures(leaving.beside(waiting))
        if shares:
            figures[:, 2:] += self.bridges(waiting, kept)[:, 1:]
        # Waiting is the first variant, leaving the second.
        figures[:, [0, 1]] = figures[:, [1, 0]]
        return figures

    def sums(self, slack: Floats) -> tuple[_Sums, _Sums]:
        """Return the sums of gangs that wait until the slack is lost, and of those that leave before."""
        lasts = [counts_within(float(each.max()), self.run.recovery) for each in slack[0]]
        last = max(lasts)
        ends = np.maximum(self.works - self.run.loss, self.works / 2)  # the last save need not be made
        waste = self.run.restart + self.run.loss
        kept = [kept_work(self.shape, self.levels, float(end), waste, last) for end in ends]
        not_done = np.array([each.not_done for each in kept])
        remaining_shares = np.array([each.remaining_share for each in kept])
        steps, counts = _STEPS[:last], COUNTS[:last].astype(np.float64)
        begun = (slack >= -_NOTHING).astype(np.float64)[..., None]
        room = slack[..., None, None] - counts * self.wasted[:, None]
        allowed = sums_within(room, self.run.recovery, last) * begun[..., None]
        before = np.empty_like(allowed)
        before[..., 0], before[..., 1:] = begun, allowed[..., :-1]
        for at, own in enumerate(lasts):  # more interruptions than these lose more than the slack at this speed
            before[:, at, :, :, own:], allowed[:, at, :, :, own:] = 0.0, 0.0
        falls = before - allowed
        # Counts between those of the tables are interpolated: a step of d lives has a mean of the later ones.
        lead, whole = (steps + 1) / (2 * steps), self.works[:, None, None]
        over = _along(remaining_shares * ends[:, None, None] + not_done * (whole - ends[:, None, None]), lead, whole)
        going = _along(not_done, lead, np.ones_like(whole))
        tried = (before - falls * ((1 - 1 / steps) / 2)) * (going * steps)[None, :, None]
        early = going * _along(counts[None, None], lead, np.zeros((1, 1, 1)))
        needed = _each_count(falls, going)
        sums = _Sums(
            hits=tried.sum(axis=-1),
            probability=needed,
            last_moment=needed,
            remaining=_each_count(falls, over),
            early=_each_count(falls, early),
        )
        sums = self._beyond(sums, slack, allowed, remaining_shares, np.array(lasts) - 1)
        # Who leaves after the third interruption falls where else the third would be followed by a fourth life.
        n = min(LEAVE_AFTER, last)
        falls = np.concatenate([falls[:1, ..., : n - 1], before[:1, ..., n - 1 : n]], axis=-1)
        last_moment = falls.copy()
        last_moment[..., n - 1] -= np.minimum(self._spare_time_probability(slack[:1], n), last_moment[..., n - 1])
        leaving = _Sums(
            hits=tried[:1, ..., :n].sum(axis=-1),
            probability=_each_count(falls, going[..., :n]),
            last_moment=_each_count(last_moment, going[..., :n]),
            remaining=_each_count(falls, over[..., :n]),
            early=_each_count(falls, going[..., :n] * counts[:n]),
        )
        return sums, leaving

    def _spare_time_probability(self, slack: Floats, hits: int) -> Floats:
        """Return the probability that so many interruptions leave time to lose the fallback once."""
        room = slack[..., None] - self.run.fallback_start - self.run.loss - hits * self.wasted
        if hits == 1:
            return np.asarray((room >= 0).astype(np.float64))
        each = np.repeat(room[..., None], hits - 1, axis=-1)
        return sums_within(each, self.run.recovery, hits - 1)[..., -1]

    def _beyond(
        self, sums: _Sums, slack: Floats, allowed: Floats, remaining_shares: Floats, ends: NDArray[np.int64]
    ) -> _Sums:
        """Return the sums where more lives are needed and allowed than are counted: the work goes on in proportion."""
        at = np.arange(len(ends))
        left_over = remaining_shares[at, :, ends][None, :, None]
        beyond = (left_over > _UNFINISHED) & (np.moveaxis(allowed[:, at, :, :, ends], 0, 1) > _UNFINISHED)
        if not beyond.any():
            return sums
        affordable = np.maximum(slack, 0.0)[..., None] / (self.wasted + self.run.recovery)
        needed = COUNTS[ends].astype(np.float64)[None, :, None, None] / np.maximum(1 - left_over, 1e-12)
        lives, short = np.minimum(needed, affordable), affordable < needed
        return _Sums(
            hits=np.where(beyond, lives, sums.hits),
            probability=np.where(beyond, short.astype(np.float64), sums.probability),
            last_moment=np.where(beyond, short.astype(np.float64), sums.last_moment),
            remaining=np.where(beyond, self._work * np.maximum(0.0, 1 - lives / needed), sums.remaining),
            early=np.where(beyond, lives * short, sums.early),
        )

    def figures(self, sums: _Sums) -> Floats:
        """Return the figures, first of all axes, of runs that are on the fallback for good once they need it."""
        begun, work = self._begun, self._work
        probability, remaining = sums.probability + 1 - begun, sums.remaining + (1 - begun) * work
        last_moment = sums.last_moment + 1 - begun
        on_fallback, ratio = probability, 1.0 if self.run.fallback_ratio is None else self.run.fallback_ratio
        if self.run.fallback_ratio is None:
            remaining, on_fallback = np.zeros_like(remaining), np.zeros_like(probability)
        done, waste = work - remaining, self.run.restart + self.run.loss
        # Who is done on spot has waited for no longer than the slack allows.
        each = self.wasted + mean_wait_within(np.maximum(self._slack(), 0.0), self.run.recovery)[..., None]
        hardware = self.run.hardware * done
        lost = sums.hits * self.wasted + hardware * waste
        delays = np.maximum(sums.hits - sums.early, 0.0) * each + hardware * (waste + self.run.recovery)
        open_end = work * max(1.0, ratio) + LEAVE_AFTER * each
        finite = np.isfinite(self.windows)
        to_the_end = np.where(finite, self.windows - self.run.fallback_start / 2, 0.0)
        late = np.where(finite[:, None], np.maximum(to_the_end[:, None], work), open_end)
        early = (probability - last_moment) * np.minimum(open_end, late)
        found = {
            "spot": done + lost,
            "fallback": ratio * remaining + on_fallback * self.run.fallback_start,
            "fallback_probability": probability,
            "last_moment_probability": last_moment,
            "elapsed": (1 - probability) * work + delays + last_moment * late + early,
            "interruptions": sums.hits + hardware,
            "lost": lost,
        }
        return np.array([found[name] for name in FIGURES])

    def bridges(self, sums: _Sums, kept: Floats) -> Floats:
        """Return what bridging adds to the figures of runs that wait until ``kept`` hours of slack are left."""
        ratio, begins = self.run.fallback_ratio or 1.0, sums.probability
        left = np.minimum(sums.remaining / np.maximum(begins, _NOTHING), self._work)
        life, square = _lived(self.shape, self.levels, self.run.restart + self.run.loss, left)
        wait = mean_wait_within(ratio * left, self.run.recovery)
        wait_square = mean_square_wait_within(ratio * left, self.run.recovery)
        each, takes = np.maximum(life + wait / ratio, _NOTHING), self.wasted + self.run.fallback_start
        most = np.floor(kept[..., None] / takes)
        # By the normal distribution of what so many rounds bring; the last life of a run is longer than was needed.
        spread = np.sqrt(np.maximum(most * (square - life**2 + (wait_square - wait**2) / ratio**2), _NOTHING))
        away = (left - most * each) / spread
        short = _normal(away)
        brought = np.minimum(most * each * short + left * (1 - short) - spread * _bell(away), left)
        brought = np.maximum(brought, 0.0)
        beyond = square / (2 * each)
        rounds = np.minimum((brought + (1 - short) * beyond) / each, np.minimum(most, 2 * left / each))
        rest = left - brought
        on_fallback = rounds * (wait + self.run.fallback_start) + ratio * rest + short * self.run.fallback_start
        on_spot = np.maximum(brought - rounds * wait / ratio, 0.0) + rounds * self.wasted
        spared = np.maximum(kept[..., None] - rounds * takes, 0.0) * (1 - short)
        found = {
            "spot": begins * on_spot,
            "fallback": begins * (on_fallback - ratio * left - self.run.fallback_start),
            "fallback_probability": np.zeros_like(begins),
            "last_moment_probability": -begins * (1 - short),
            "elapsed": -begins * spared,
            "interruptions": begins * rounds,
            "lost": begins * rounds * self.wasted,
        }
        return np.array([found[name] for name in FIGURES])


def _each_count(falls: Floats, figure: Floats) -> Floats:
    """Return the sum over counts of falls by [share, speed, window, level, count] times a figure by all but window."""
    return np.asarray(np.einsum("kswln,sln->kswl", falls, figure))


def _along(figures: Floats, lead: Floats, first: Floats) -> Floats:
    """Return the mean of each figure over the counts that its last axis stands for; ``first`` is that of no lives."""
    before = np.concatenate([np.broadcast_to(first, (*figures.shape[:-1], 1)), figures[..., :-1]], axis=-1)
    return np.asarray(before + (figures - before) * lead)


def _mean_waste(shape: HazardShape, levels: Floats, waste: float) -> Floats:
    """Return by level the mean of min(X, waste): the hours of a life that leave nothing."""
    return _lived(shape, levels, 0.0, np.array(waste))[0]


def _lived(shape: HazardShape, levels: Floats, begin: float, hours: Floats) -> tuple[Floats, Floats]:
    """Return the mean of K = min(max(X - begin, 0), hours) of a life X, and of its square; levels are the last axis."""
    if shape is HazardShape.CONSTANT:
        rate = np.maximum(levels, _NOTHING)
        alive, x = np.exp(-rate * begin), rate * hours
        return -alive * np.expm1(-x) / rate, 2 * alive * (1 - np.exp(-x) * (1 + x)) / rate**2
    scale = AGE_SCALE_HOURS + begin
    alive, grown = (1 + begin / AGE_SCALE_HOURS) ** -levels, np.log1p(hours / scale)

    def grown_to(power: Floats) -> Floats:
        near = np.abs(power) < 1e-6
        return np.where(near, grown, np.expm1(power * grown) / np.where(near, 1.0, power))

    first = grown_to(1 - levels)
    return alive * scale * first, 2 * alive * scale**2 * (grown_to(2 - levels) - first)


def _normal(x: Floats) -> Floats:
    """Return P(a standard normal is at most x), to 1e-7 (Abramowitz and Stegun 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = _bell(x) * poly
    return np.asarray(np.where(x > 0, 1 - tail, tail))


def _bell(x: Floats) -> Floats:
    """Return the density of a standard normal."""
    return np.asarray(np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def in_time_by_speed(run: GuardedWork, windows: Floats) -> Floats:
    """Return the probability that the speed is high enough for the fallback, begun at once, to be in time."""
    ratio = 1.0 if run.fallback_ratio is None else run.fallback_ratio
    longest = (windows - run.fallback_start - run.margin) / (run.work * max(1.0, ratio))
    if run.relative_error == 0:
        return np.asarray((longest >= 1 - _NOTHING).astype(np.float64))
    return np.asarray(ndtr((longest - 1) / run.relative_error), dtype=np.float64)
