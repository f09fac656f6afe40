"""A spot gang under the deadline guard: what it costs, when it is done, how much of it ends on demand. Pure.

The policy: start on one pool; after an interruption restart in place as soon as it has machines again; on demand, at a
named fallback, at the last moment at which that is still in time. Two variants of it may cost less, by the level of the
hazard, which the first lives show: leaving the pool after the third interruption, and bridging: with a share of the
slack left the run works on the fallback while the pool has no machines, and goes back when it has.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing.hazard import AGE_SCALE_HOURS, LEVELS, Hazard, HazardShape
from router.jobs.goodput import ndtr, run_share
from router.jobs.interruption_sums import LEAVE_AFTER, NOTHING, SpotRuns, Sums, begins_on_spot
from router.jobs.pool_waits import REMAINING_POINTS, WAIT_POINTS, mean_square_wait_within, mean_wait_within
from router.jobs.renewals import Floats, Lives, kept_work, lives_after, mean_life_within

#: Shares of the slack that a run may keep for bridging.
BRIDGED_SHARES: Final = (0.25, 0.5, 1.0)
# Gauss-Hermite points of a normal error: exact for polynomials of degree five.
_ERRORS: Final = ((-math.sqrt(3.0), 1 / 6), (0.0, 2 / 3), (math.sqrt(3.0), 1 / 6))
_FIGURE_LEVELS: Final = LEVELS[::2]
_LIFE_PARTS: Final = 6  # into which the life of a gang that runs already is parted
_LONGEST_SPELL: Final = 72.0  # hours: what a pool that keeps its machines longer is taken to keep them
_SURE_SPEED: Final = 0.06  # relative errors up to this hardly matter to an expectation
_TOGETHER: Final = 16  # runs in one array: it stays small enough for the processor's cache


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
        return GuardedFigures(*(self.cheapest(np.array([price_ratio]))[:, 0] @ figure_weights(hazard)))

    def cheapest(self, price_ratios: Floats) -> Floats:
        """Return the figures of the cheapest variant by [figure, price ratio, window, level]."""
        usd = self.variants[_SPOT] + price_ratios[:, None, None, None] * self.variants[_FALLBACK]
        cheapest = np.argmin(usd, axis=1)
        _, _, windows, levels = self.variants.shape
        # Places in a table of variants by window and level.
        place = cheapest * (windows * levels) + np.arange(windows * levels).reshape(windows, levels)
        return np.asarray(self.variants.reshape(len(FIGURES), -1).take(place, axis=1))

    def expect_variant(self, hazard: Hazard, which: int) -> GuardedFigures:
        """Return the expectation where one variant is followed at all levels."""
        return GuardedFigures(*(self.variants[:, which] @ figure_weights(hazard)))


def figure_levels(hazard: Hazard) -> tuple[float, ...]:
    """Return the levels at which figures are computed: every second one of the common grid."""
    return _FIGURE_LEVELS if hazard.levels == LEVELS else hazard.levels


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
    return figures_of_runs([(run, windows)], shape, levels)[0]


def figures_of_runs(
    runs: Sequence[tuple[GuardedWork, Floats]], shape: HazardShape, levels: tuple[float, ...]
) -> list[LevelFigures]:
    """Return the figures of several runs in their windows, as :func:`level_figures`, computed together."""
    alike: dict[tuple[float, bool, int], list[int]] = {}
    for at, (run, _) in enumerate(runs):
        alike.setdefault((run.recovery, run.fallback_ratio is None, len(_speeds(run))), []).append(at)
    figures: dict[int, LevelFigures] = {}
    for places in alike.values():
        for begin in range(0, len(places), _TOGETHER):
            part = places[begin : begin + _TOGETHER]
            together = _RunsAtSpeeds.of([runs[at] for at in part], shape, levels).level_figures()
            figures.update(zip(part, together, strict=True))
    return [figures[at] for at in range(len(runs))]


def _speeds(run: GuardedWork) -> tuple[tuple[float, float], ...]:
    """Return some errors of the speed, in standard deviations, and how likely each is."""
    return _ERRORS if run.relative_error > _SURE_SPEED else ((0.0, 1.0),)


def _works(run: GuardedWork) -> Floats:
    return run.work * np.array([float(run_share(run.relative_error, z)) for z, _ in _speeds(run)])


def started_figures(
    runs: Sequence[tuple[GuardedWork, Floats]], shape: HazardShape, levels: tuple[float, ...]
) -> list[LevelFigures]:
    """Return the figures, in windows, of gangs that are asked for at any moment: a pool may have no machines then.

    How often it has none follows from the lengths of lives and waits; what is left of such a wait goes first.
    """
    starts = [_Starts.of(run, windows) for run, windows in runs]
    figures = figures_of_runs([(start.run, start.hours) for start in starts], shape, levels)
    up = mean_life_within(shape, levels, _LONGEST_SPELL)
    return [start.mix(each, up) for start, each in zip(starts, figures, strict=True)]


@dataclass(frozen=True, eq=False, slots=True)
class _Starts:
    """The windows of a gang that begins at once, or after what is left of a wait for machines.

    ``hours`` are those that are left, each once, of which ``place`` has the number: of the windows, and then of each
    wait and window, as ``later``.
    """

    run: GuardedWork
    windows: Floats
    later: Floats
    begins: NDArray[np.bool_]
    hours: Floats
    place: NDArray[np.intp]

    @classmethod
    def of(cls, run: GuardedWork, windows: Floats) -> _Starts:
        waits = np.array([run.recovery * wait for wait, _ in REMAINING_POINTS] if run.recovery > 0 else [])
        later = windows - waits[:, None]
        # All windows that are too short for the gang have the same figures, but for the time until the end.
        least = run.fallback_start + run.margin + _works(run).min() * max(1.0, run.fallback_ratio or 1.0)
        begins = later >= least - NOTHING
        hours, place = np.unique(np.concatenate([windows, np.where(begins, later, 0.0).ravel()]), return_inverse=True)
        return cls(run, windows, later, begins, hours, place)

    def mix(self, figures: LevelFigures, up: Floats) -> LevelFigures:
        """Return the mean of the figures; ``up`` is how long a pool keeps its machines, by level."""
        run, count = self.run, len(self.windows)
        if run.recovery <= 0:
            return replace(figures, variants=figures.variants[:, :, self.place], windows=self.windows)
        now, rest = np.split(figures.variants[:, :, self.place], [count], axis=2)
        rest = rest.reshape(*rest.shape[:2], *self.later.shape, -1)
        elapsed = rest[FIGURES.index("elapsed")]
        waits = np.array([run.recovery * wait for wait, _ in REMAINING_POINTS])
        late = np.maximum(self.later - run.fallback_start / 2, run.work)
        elapsed[:] = np.where(self.begins[None, :, :, None], elapsed, late[None, :, :, None]) + waits[:, None, None]
        down = run.recovery / (run.recovery + up)
        shares = np.array([share for _, share in REMAINING_POINTS])
        found = now * (1 - down) + np.einsum("fvdwl,d->fvwl", rest, shares) * down
        return replace(figures, variants=found, windows=self.windows)


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
class _RunsAtSpeeds:
    """Runs at several speeds, whose pools have the same waits; all have a fallback or none has.

    The windows of all runs follow each other: ``run_of`` has the run's number for each window; ``spot`` is what the
    runs do on spot. ``work``, ``ratio``, ``wasted`` and ``start`` are by window; ``slack`` by [speed, window, 1] is the
    hours that may be lost before the fallback has to begin. Figures are by [variant, speed, window, level], with the
    variants of :class:`LevelFigures`.
    """

    runs: Sequence[GuardedWork]
    run_of: NDArray[np.intp]
    windows: Floats
    spot: SpotRuns
    work: Floats
    ratio: Floats
    wasted: Floats
    start: Floats
    slack: Floats

    @classmethod
    def of(
        cls, runs: Sequence[tuple[GuardedWork, Floats]], shape: HazardShape, levels: tuple[float, ...]
    ) -> _RunsAtSpeeds:
        ends = np.cumsum([0, *(len(windows) for _, windows in runs)]).tolist()
        works = [run for run, _ in runs]
        wastes = [run.restart + run.loss for run in works]
        spot = SpotRuns(
            shape=shape,
            levels=np.array(levels),
            recovery=works[0].recovery,
            spans=[slice(begin, end) for begin, end in pairwise(ends)],
            works=np.array([_works(run) for run in works]).T,
            wastes=np.array(wastes),
            losses=np.array([run.loss for run in works]),
            starts=np.array([run.fallback_start for run in works]),
            wasted=np.array([mean_life_within(shape, levels, waste) for waste in wastes]),
        )
        run_of = np.repeat(np.arange(len(runs)), np.diff(ends))
        windows = np.concatenate([windows for _, windows in runs])
        work, start = spot.works[:, run_of, None], spot.starts[run_of, None]
        ratio = np.array([1.0 if run.fallback_ratio is None else run.fallback_ratio for run in works])[run_of, None]
        margin = np.array([run.margin for run in works])[run_of, None]
        slack = windows[:, None] - start - margin - work * np.maximum(1.0, ratio)
        return cls(works, run_of, windows, spot, work, ratio, spot.wasted[run_of], start, slack)

    def _by_window(self, figure: Callable[[GuardedWork], float]) -> Floats:
        """Return a figure of runs by [window, 1]."""
        return np.array([figure(run) for run in self.runs])[self.run_of, None]

    @property
    def _falls_back(self) -> bool:
        return self.runs[0].fallback_ratio is not None

    def level_figures(self) -> list[LevelFigures]:
        figures, spot = self.variants(), self.spot
        # The mean over speeds, which are the last axis then.
        by_speed = np.stack([figures[:, :, speed] for speed in range(len(spot.works))], axis=-1)
        mean = by_speed.reshape(-1, len(spot.works)) @ np.array([share for _, share in _speeds(self.runs[0])])
        variants = mean.reshape(by_speed.shape[:-1])
        kept = kept_work(spot.shape, spot.levels, np.array([run.work for run in self.runs]), spot.wastes, LEAVE_AFTER)
        return [
            LevelFigures(
                levels=spot.levels,
                variants=variants[:, :, span],
                windows=self.windows[span],
                work=run.work,
                remaining_share=kept.remaining_share[at, :, -1],
                not_done=kept.not_done[at, :, -1],
                hits=kept.not_done[at].sum(axis=1),
                wasted=spot.wasted[at],
                delay=spot.wasted[at] + run.recovery,
            )
            for at, (run, span) in enumerate(zip(self.runs, spot.spans, strict=True))
        ]

    def variants(self) -> Floats:
        slack = self.slack
        spare = np.where(np.isfinite(slack), np.maximum(slack, 0.0), 0.0)
        kept = np.array([0.0, *(BRIDGED_SHARES if self._falls_back else ())])[:, None, None, None] * spare
        sums = self.spot.sums((slack - kept)[..., 0])
        figures = self.figures(sums)
        if self._falls_back:
            figures[:, 2:] += self.bridges(sums.probability[2:], sums.remaining[2:], kept[1:])
        return figures

    def figures(self, sums: Sums) -> Floats:
        """Return the figures, first of all axes, of runs that are on the fallback for good once they need it."""
        slack, work, ratio, start, wasted = self.slack, self.work, self.ratio, self.start, self.wasted
        begun = begins_on_spot(slack)
        probability, remaining = sums.probability + 1 - begun, sums.remaining + (1 - begun) * work
        last_moment = sums.last_moment + 1 - begun
        on_fallback = probability
        if not self._falls_back:
            remaining, on_fallback = np.zeros_like(remaining), np.zeros_like(probability)
        done, waste = work - remaining, self._by_window(lambda run: run.restart + run.loss)
        # Who is done on spot has waited for no longer than the slack allows.
        each = wasted + mean_wait_within(np.maximum(slack, 0.0), self.spot.recovery)
        hardware = self._by_window(lambda run: run.hardware) * done
        lost = sums.hits * wasted + hardware * waste
        delays = np.maximum(sums.hits - sums.early, 0.0) * each + hardware * (waste + self.spot.recovery)
        open_end = work * np.maximum(1.0, ratio) + LEAVE_AFTER * each
        finite = np.isfinite(self.windows)
        to_the_end = np.where(finite, self.windows - start[:, 0] / 2, 0.0)[:, None]
        late = np.where(finite[:, None], np.maximum(to_the_end, work), open_end)
        early = (probability - last_moment) * np.minimum(open_end, late)
        found = {
            "spot": done + lost,
            "fallback": ratio * remaining + on_fallback * start,
            "fallback_probability": probability,
            "last_moment_probability": last_moment,
            "elapsed": (1 - probability) * work + delays + last_moment * late + early,
            "interruptions": sums.hits + hardware,
            "lost": lost,
        }
        return np.array([found[name] for name in FIGURES])

    def bridges(self, begins: Floats, remaining: Floats, kept: Floats) -> Floats:
        """Return what bridging adds to the figures of runs that wait until ``kept`` hours of slack are left.

        ``begins`` is the probability that they do not suffice, ``remaining`` the work that is left then.
        """
        ratio, start, wasted = self.ratio, self.start, self.wasted
        left = np.minimum(remaining / np.maximum(begins, NOTHING), self.work)
        levels = tuple(self.spot.levels.tolist())
        lives = [lives_after(self.spot.shape, levels, waste) for waste in self.spot.wastes.tolist()]
        life, square = Lives.of_windows(lives, self.run_of).kept(left)
        wait = mean_wait_within(ratio * left, self.spot.recovery)
        wait_square = mean_square_wait_within(ratio * left, self.spot.recovery)
        each, takes = np.maximum(life + wait / ratio, NOTHING), wasted + start
        most = np.floor(kept / takes)
        # By the normal distribution of what so many rounds bring; the last life of a run is longer than was needed.
        ratio_square = self._by_window(lambda run: (run.fallback_ratio or 1.0) ** 2)
        spread = np.sqrt(np.maximum(most * (square - life**2 + (wait_square - wait**2) / ratio_square), NOTHING))
        away = (left - most * each) / spread
        bell = np.exp(-0.5 * away * away) / math.sqrt(2 * math.pi)
        short = _normal(away, bell)
        brought = np.minimum(most * each * short + left * (1 - short) - spread * bell, left)
        brought = np.maximum(brought, 0.0)
        beyond = square / (2 * each)
        rounds = np.minimum((brought + (1 - short) * beyond) / each, np.minimum(most, 2 * left / each))
        rest = left - brought
        on_fallback = rounds * (wait + start) + ratio * rest + short * start
        on_spot = np.maximum(brought - rounds * wait / ratio, 0.0) + rounds * wasted
        spared = np.maximum(kept - rounds * takes, 0.0) * (1 - short)
        found = {
            "spot": begins * on_spot,
            "fallback": begins * (on_fallback - ratio * left - start),
            "fallback_probability": np.zeros_like(begins),
            "last_moment_probability": -begins * (1 - short),
            "elapsed": -begins * spared,
            "interruptions": begins * rounds,
            "lost": begins * rounds * wasted,
        }
        return np.array([found[name] for name in FIGURES])


def _normal(x: Floats, bell: Floats) -> Floats:
    """Return P(a standard normal is at most x), to 1e-7 (Abramowitz and Stegun 26.2.17); ``bell`` is its density."""
    t = 1 / (1 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = bell * poly
    return np.asarray(np.where(x > 0, 1 - tail, tail))


def in_time_by_speed(run: GuardedWork, windows: Floats) -> Floats:
    """Return the probability that the speed is high enough for the fallback, begun at once, to be in time."""
    ratio = 1.0 if run.fallback_ratio is None else run.fallback_ratio
    longest = (windows - run.fallback_start - run.margin) / (run.work * max(1.0, ratio))
    if run.relative_error == 0:
        return np.asarray((longest >= 1 - NOTHING).astype(np.float64))
    return np.asarray(ndtr((longest - 1) / run.relative_error), dtype=np.float64)
