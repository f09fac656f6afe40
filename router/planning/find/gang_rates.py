"""Compute a job's rates on a gang from its speed, its interruptions and what the job file states of them. Pure.

On-demand and reserved gangs, and jobs that cannot resume, run alone: goodput in closed form. A spot gang runs under the
deadline guard (:mod:`router.jobs.guarded_run`), with the on-demand gang of a named fallback behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import numpy as np

from pricing.hazard import Hazard, HazardShape
from pricing.offers import Offer
from pricing.places import Market
from pricing.risk import GangRisk
from pricing.units import to_digits, to_percent
from router.jobs import goodput
from router.jobs.goodput import BilledShares, GangRunRisk
from router.jobs.guarded_run import (
    GuardedFigures,
    GuardedWork,
    LevelFigures,
    aged_figures,
    figure_levels,
    in_time_by_speed,
    started_figures,
)
from router.jobs.other_pools import ChangingFigures, ChangingRun, OtherPools, expect_changes
from router.jobs.quantities import LONGEST_RUN
from router.jobs.spec import Checkpoint, Interruptions, Job
from router.jobs.speed import Speed
from router.planning.find.checkpoint_times import interval_hours, write_hours
from router.planning.find.feasibility import ListingRefusal

#: The code of gangs that are not as sure to be done in time as their job asks.
TOO_RISKY: Final = "too risky"
#: The code of gangs on which a job would take longer than a plan may run.
TOO_SLOW: Final = "too slow"
#: A fallback is begun this much before its last moment: the controller looks at a gang every five minutes.
GUARD_MARGIN_HOURS: Final = 2 * 5 / 60
_HOUR = timedelta(hours=1)
_LONGEST_HOURS: Final = LONGEST_RUN / _HOUR
# The time reserved of a guarded run lies between what the fallback alone needs and the deadline. More of it keeps the
# places from other jobs: the least is taken in which the run would cost little more than in all of it. Its cost is that
# of a run that begins at once, whose guard acts at the deadline; one that begins as late as it may costs that bit more.
_WINDOWS: Final = 5
_WIDEST: Final = 6.0  # times the least window
_DEADLINES: Final = 2  # windows beyond the widest, up to a deadline that is further away
_LONGEST_WAIT: Final = 45.0  # mean waits for machines, which hardly any wait exceeds
_NEEDED: Final = 1.3  # times the least window, where not even that is left
_LITTLE_MORE: Final = 1.2
_WAIT_UNIT: Final = 2.1  # hours: the wait assumed of most pools stays exact; pools with near waits share their figures
#: Hours: saves are planned at the mean rate of a life of this length, or of the whole run.
TYPICAL_LIFE: Final = 8.0


@dataclass(frozen=True, slots=True)
class FallbackGang:
    """The on-demand gang that a guarded run falls back on, as its rates need it.

    ``steps_per_hour`` is expected; ``start_hours`` is from the decision to the first new step, transfers included.
    ``refusal`` is the probability that it cannot be had, ``failures_per_hour`` how often it is lost.
    """

    key: str
    steps_per_hour: float
    start_hours: float
    usd_per_hour: float
    refusal: float
    failures_per_hour: float


@dataclass(frozen=True, slots=True)
class GuardTerms:
    """The guard's part of a run: its fallback, and how likely the run is to be done in time.

    ``probability`` is that of needing the fallback, ``on_time_probability`` that of being done by the deadline if the
    run begins as late as the time reserved allows: before that it is surer.
    ``reserves_fallback``: without it the run is not as sure as the job asks, so that limits keep it free for the run.
    ``slow_share`` is how much longer than expected the work takes at a speed that is reached with the job's confidence.
    ``interruptions`` are those expected in the whole run, ``changes`` how likely it leaves its spot pool for another.
    ``costs`` are the expected dollars of the whole run by the hours from its start to the deadline, rising: the less
    is left, the more of it is on the fallback.
    """

    hours_per_reserved: float
    probability: float
    on_time_probability: float
    refusal_probability: float
    reserves_fallback: bool
    slow_share: float
    interruptions: float
    changes: float
    shares: BilledShares
    costs: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class GangRates:
    """A job's rates on a gang: goodput, the same with its confidence, the share billed, and the risk behind them.

    ``guard`` is None where the gang runs alone.
    """

    steps_per_hour: float
    on_time_steps_per_hour: float
    billed_share: float
    risk: GangRunRisk
    guard: GuardTerms | None = None


class _Part(Protocol):
    @property
    def offer(self) -> Offer: ...


def stated_risk(job: Job, parts: Iterable[_Part], risk: GangRisk) -> GangRisk | None:
    """Return the risk of a gang by the interruptions an hour that the job file states; None where it states none.

    A statement is on gangs with spot machines. It goes before all evidence, and stays what it is: a constant rate.
    """
    stated = None if job.interruptions is None else job.interruptions.per_hour
    if stated is None or not any(part.offer.market is Market.SPOT for part in parts):
        return None
    known = Hazard.known(stated)
    return GangRisk(known, known, 0.0, risk.recovery_hours, (), "")


@dataclass(frozen=True, slots=True)
class RunTerms:
    """The statements of a job on which its rates depend.

    ``window_hours`` are those from its first start to its deadline, None without one. Jobs and variants of a job that
    state the same have the same rates.
    """

    checkpoint: Checkpoint | None
    interruptions: Interruptions | None
    restart_time: timedelta
    confidence: float
    window_hours: float | None


@dataclass(frozen=True, slots=True)
class RateRequest:
    """A gang whose rates for so many steps are to be found.

    ``others`` are the spot pools to which it may go from a bad one, None where there are none. ``age_hours`` is how
    long it has run without an interruption: the older, the less likely is the next one.
    """

    speed: Speed
    risk: GangRisk
    steps: int
    usd_per_hour: float
    spot: bool
    fallback: FallbackGang | None = None
    others: OtherPools | None = None
    age_hours: float = 0.0

    @property
    def whole_hours(self) -> float:
        """Return the hours of all steps without interruptions."""
        return self.steps / self.speed.steps_per_hour


@dataclass(frozen=True, eq=False, slots=True)
class _WindowFigures:
    """The times that may be reserved for a run, how likely its speed is high enough in each, and its figures."""

    windows: np.ndarray
    by_speed: np.ndarray
    figures: LevelFigures


#: What figures depend on: the work, the shape and the levels of the hazard, and the age of a gang that runs already.
_FigureKey = tuple[GuardedWork, HazardShape, tuple[float, ...], float]


@dataclass
class RateFinder:
    """Computes rates of gangs, each once, for all jobs with the same terms.

    ``refuses_long``: gangs that need longer than a plan may run are refused; without it only those on spot alone are.
    """

    terms: RunTerms
    refuses_long: bool = True
    _figures: dict[_FigureKey, _WindowFigures] = field(default_factory=dict)
    _found: dict[tuple[object, ...], GangRates | ListingRefusal] = field(default_factory=dict)

    def rates(self, requests: Sequence[RateRequest]) -> list[GangRates | ListingRefusal]:
        """Return the job's rates on each gang, or why it is too slow or too risky; together they take less time."""
        keys = [self._key(request) for request in requests]
        missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in self._found}
        guarded = [(key, request) for key, request in missing.items() if self._guards(request)]
        for key, request in missing.items():
            if not self._guards(request):
                self._found[key] = self._alone(request)
        for (key, _), rates in zip(guarded, self._guarded([request for _, request in guarded]), strict=True):
            self._found[key] = rates
        return [self._found[key] for key in keys]

    def _guards(self, request: RateRequest) -> bool:
        return request.spot and self.terms.checkpoint is not None

    def _key(self, request: RateRequest) -> tuple[object, ...]:
        """Return what the rates of a gang depend on."""
        speed, risk = request.speed, request.risk
        key = (speed.steps_per_hour, speed.relative_error, risk.hazard, risk.hardware_per_hour, risk.recovery_hours)
        if not self._guards(request):
            return (*key, request.steps)
        return (*key, request.steps, request.usd_per_hour, request.fallback, request.others, request.age_hours)

    def forget_figures(self) -> None:
        """Free what only the gangs of one job can share."""
        self._figures.clear()

    def _alone(self, request: RateRequest) -> GangRates | ListingRefusal:
        rate = request.risk.per_hour_over(min(request.whole_hours, _LONGEST_HOURS))
        alone = goodput.round_risk(run_risk(self.terms, request.speed, request.risk, request.steps, rate))
        expected = to_digits(goodput.expected_steps_per_hour(alone))
        slow = _too_slow(request.steps, expected) if self.refuses_long else None
        if slow is not None:
            return slow
        on_time = expected
        if self.terms.window_hours is not None:
            on_time = to_digits(goodput.on_time_steps_per_hour(alone, request.steps, self.terms.confidence))
            if on_time <= 0:
                return ListingRefusal(TOO_RISKY, f"no finish time is {to_percent(self.terms.confidence)} sure")
        return GangRates(expected, on_time, to_digits(goodput.billed_share(alone)), alone)

    def _guarded(self, requests: Sequence[RateRequest]) -> list[GangRates | ListingRefusal]:
        risks = [self._planned_risk(request) for request in requests]
        works = [_guarded_work(request, planned) for request, planned in zip(requests, risks, strict=True)]
        figures = self._figures_of(works, requests)
        return [
            self._guarded_rates(request, planned, work, by_window, expected)
            for request, planned, work, by_window, expected in zip(
                requests, risks, works, figures, _expected_figures(requests, figures), strict=True
            )
        ]

    def _planned_risk(self, request: RateRequest) -> GangRunRisk:
        # Saves hardly matter about their best interval: with few rates many gangs share their figures.
        rate = request.risk.per_hour_over(min(request.whole_hours, TYPICAL_LIFE))
        rate = _round_to_step(max(rate, 1e-6), 1.0, 2)
        return run_risk(self.terms, request.speed, request.risk, request.steps, rate)

    def _guarded_rates(
        self,
        request: RateRequest,
        planned: GangRunRisk,
        work: GuardedWork,
        by_window: _WindowFigures,
        changing: ChangingFigures,
    ) -> GangRates | ListingRefusal:
        windows, fallback = by_window.windows, request.fallback
        # How likely the run is to be done in time is that of staying: other pools may have no machines.
        staying, expected = changing.staying, changing.figures
        sure = _on_time(by_window.by_speed, staying, fallback).tolist()
        fallback_usd = 0.0 if fallback is None else fallback.usd_per_hour
        usd = (expected.spot * request.usd_per_hour + expected.fallback * fallback_usd).tolist()
        best = self._choose(usd, sure, alone=fallback is None)
        if best is None:
            unsure = f"no finish time is {to_percent(self.terms.confidence)} sure"
            why = "" if fallback is None else ": its fallback may be refused, or lost when no time is left"
            return ListingRefusal(TOO_RISKY, f"{unsure}{why}")
        alone = float(by_window.by_speed[best] * (1 - staying.fallback_probability[best]))
        deadline = self.terms.window_hours is not None
        costs: tuple[tuple[float, float], ...] = ()
        if fallback is not None and len(windows) > 1:
            costs = tuple((to_digits(w), to_digits(u)) for w, u in zip(windows.tolist(), usd, strict=True))
        return _guarded_rates(
            planned,
            work,
            expected,
            request.steps,
            float(windows[best]) if deadline else math.inf,
            sure[best],
            float(changing.changes[-1]),
            0.0 if fallback is None else fallback.refusal,
            refuses_long=self.refuses_long or fallback is None,
            reserves=fallback is not None and deadline and alone < self.terms.confidence,
            slower=1 + _deviations(self.terms.confidence if deadline else 0.5) * request.speed.relative_error,
            costs=costs,
        )

    def _windows(self, work: GuardedWork) -> np.ndarray:
        """Return the times that may be reserved, rising; hours after the first start-up."""
        if self.terms.window_hours is None:
            return np.array([_LONGEST_HOURS if work.fallback_ratio is None else math.inf])
        # At the expected speed: the costs in these windows are the same however sure the job has to be.
        least = work.least_window
        most, count = _WIDEST * least, _WINDOWS
        if work.fallback_ratio is not None:
            most = min(most, self.terms.window_hours)
            needed = least * (1 + _deviations(self.terms.confidence) * work.relative_error)
            if self.terms.window_hours <= needed:
                # The deadline is too near, the gang needs longer: the plan says so, or which one would do.
                least, most = needed, _NEEDED * needed
        elif least + _LONGEST_WAIT * work.recovery > most:
            # Alone, a short run may wait for machines far longer than it works, though mostly it does not.
            most, count = least + _LONGEST_WAIT * work.recovery, 2 * _WINDOWS
        # A little more than the least, at which nothing is left for interruptions.
        windows = np.unique(least * (most / least) ** (np.arange(1, count + 1) / count))
        if self.terms.window_hours > most:
            # No guarded run is given so much time, but the guard acts no sooner; alone a run may need it to be sure.
            further = (self.terms.window_hours / most) ** (np.arange(1, _DEADLINES + 1) / _DEADLINES)
            windows = np.append(windows, most * further)
        if work.fallback_ratio is not None:
            return windows
        # Alone it goes on after its deadline: the last window has what it costs, the others how likely it is in time.
        return np.append(windows, max(_LONGEST_HOURS, float(windows[-1])))

    def _figures_of(self, works: Sequence[GuardedWork], requests: Sequence[RateRequest]) -> list[_WindowFigures]:
        """Return the figures of runs, each once and all that begin anew together."""
        keys = [
            (work, request.risk.hazard.shape, figure_levels(request.risk.hazard), request.age_hours)
            for work, request in zip(works, requests, strict=True)
        ]
        anew: dict[tuple[HazardShape, tuple[float, ...]], dict[_FigureKey, np.ndarray]] = {}
        for key in dict.fromkeys(keys):
            work, shape, levels, age = key
            if key in self._figures:
                continue
            windows = self._windows(work)
            if age > 0:
                self._add_figures(key, windows, aged_figures(work, shape, levels, windows, age))
            else:
                anew.setdefault((shape, levels), {})[key] = windows
        for (shape, levels), runs in anew.items():
            figures = started_figures([(key[0], windows) for key, windows in runs.items()], shape, levels)
            for key, each in zip(runs, figures, strict=True):
                self._add_figures(key, runs[key], each)
        return [self._figures[key] for key in keys]

    def _add_figures(self, key: _FigureKey, windows: np.ndarray, figures: LevelFigures) -> None:
        by_speed = np.where(np.isfinite(windows), in_time_by_speed(key[0], windows), 1.0)
        self._figures[key] = _WindowFigures(windows, by_speed, figures)

    def _choose(self, usd: Sequence[float], sure: Sequence[float], *, alone: bool) -> int | None:
        """Return the shortest window that is sure enough and costs little more than the widest; None for none.

        A gang ``alone`` has no fallback, and its last window is beyond the deadline.
        """
        if self.terms.window_hours is None:
            return 0
        enough = [i for i in range(len(usd) - alone) if sure[i] >= self.terms.confidence]
        if alone:
            return enough[0] if enough else None
        widest = usd[min(_WINDOWS, len(usd)) - 1]
        given = enough[:1] + [i for i in enough[1:] if i < _WINDOWS]
        return next((i for i in given if usd[i] <= widest * _LITTLE_MORE), given[-1] if given else None)


def _expected_figures(requests: Sequence[RateRequest], figures: Sequence[_WindowFigures]) -> list[ChangingFigures]:
    """Return the expected figures of gangs by window."""
    runs = []
    for request, by_window in zip(requests, figures, strict=True):
        ratio = None if request.fallback is None else request.fallback.usd_per_hour / request.usd_per_hour
        runs.append(ChangingRun(by_window.figures, request.risk.hazard, ratio, request.others))
    return expect_changes(runs)


def _guarded_work(request: RateRequest, planned: GangRunRisk) -> GuardedWork:
    """Return the work of a gang that saves as planned, in hours, and its fallback."""
    whole, fallback = request.whole_hours, request.fallback
    stalled = (planned.interval_hours + planned.stall_hours) / planned.interval_hours
    return GuardedWork(
        work=whole * stalled,
        relative_error=request.speed.relative_error,
        restart=planned.startup_hours,
        recovery=_round_to_step(planned.recovery_hours, _WAIT_UNIT, 4),
        loss=planned.mean_loss_hours,
        hardware=request.risk.hardware_per_hour,
        fallback_ratio=None if fallback is None else request.steps / fallback.steps_per_hour / (whole * stalled),
        fallback_start=0.0 if fallback is None else fallback.start_hours,
        margin=0.0 if fallback is None else GUARD_MARGIN_HOURS,
    )


def _guarded_rates(
    planned: GangRunRisk,
    work: GuardedWork,
    expected: GuardedFigures,
    steps: int,
    window: float,
    sure: float,
    changes: float,
    refusal: float,
    *,
    refuses_long: bool,
    reserves: bool,
    slower: float,
    costs: tuple[tuple[float, float], ...],
) -> GangRates | ListingRefusal:
    # The last window reaches to the deadline, where the guard acts.
    spot, fallback, elapsed = (float(f[-1]) for f in (expected.spot, expected.fallback, expected.elapsed))
    reserved = window if math.isfinite(window) else elapsed
    elapsed = min(elapsed, reserved)
    slow = _too_slow(steps, steps / elapsed) if refuses_long else None
    if slow is not None:
        return slow
    hits, lost = float(expected.interruptions[-1]), float(expected.lost[-1])
    wasted = work.restart + work.loss
    restarts = lost * (work.restart / wasted if wasted > 0 else 0.0)
    cycle = planned.interval_hours + planned.stall_hours
    done = max(spot - lost, 0.0)
    shares = [done * planned.interval_hours / cycle, lost - restarts, done * planned.stall_hours / cycle, restarts]
    risk = goodput.replace_rate(planned, max(hits / max(spot, 1e-9), 1e-9))
    return GangRates(
        steps_per_hour=to_digits(steps / elapsed),
        on_time_steps_per_hour=to_digits(steps / reserved),
        billed_share=to_digits(min(1.0, spot / elapsed)),
        risk=goodput.round_risk(risk),
        guard=GuardTerms(
            hours_per_reserved=to_digits(fallback / reserved),
            probability=to_digits(float(expected.fallback_probability[-1])),
            on_time_probability=to_digits(sure),
            refusal_probability=refusal,
            reserves_fallback=reserves,
            slow_share=to_digits(slower),
            interruptions=to_digits(hits),
            changes=to_digits(changes),
            shares=BilledShares(*(to_digits(share / spot) if spot > 0 else 0.0 for share in shares)),
            costs=costs,
        ),
    )


def _on_time(by_speed: np.ndarray, expected: GuardedFigures, fallback: FallbackGang | None) -> np.ndarray:
    """Return the probability to be done in each window.

    What the guard cannot hold is the speed, and the fallback: it may be refused, or, where it is begun at the last
    moment, lost again when no time is left for that. Without one the gang has to be done alone.
    """
    if fallback is None:
        return np.asarray(by_speed * (1 - expected.fallback_probability))
    needed = expected.fallback_probability
    lost_again = 1 - np.exp(-fallback.failures_per_hour * expected.fallback / np.maximum(needed, 1e-12))
    late = needed * fallback.refusal + expected.last_moment_probability * (1 - fallback.refusal) * lost_again
    return np.asarray(by_speed * (1 - late))


def _too_slow(steps: int, steps_per_hour: float) -> ListingRefusal | None:
    if steps_per_hour * _LONGEST_HOURS >= steps:
        return None
    days = math.inf if steps_per_hour == 0 else steps / steps_per_hour / 24
    return ListingRefusal(TOO_SLOW, f"{days:,.0f} days of run time: over {LONGEST_RUN.days}")


def _deviations(confidence: float) -> float:
    return max(0.0, goodput.normal_quantile(confidence))


def _round_to_step(figure: float, unit: float, steps: int) -> float:
    """Return a figure to the nearest of so many steps in each doubling from the unit on."""
    if figure <= 0:
        return 0.0
    return float(unit * 2.0 ** (round(steps * math.log2(figure / unit)) / steps))


def run_risk(terms: RunTerms, speed: Speed, risk: GangRisk, steps: int, rate: float) -> GangRunRisk:
    """Return the parameters of a run that is interrupted at this constant rate."""
    whole = steps / speed.steps_per_hour
    lost = None if terms.interruptions is None else terms.interruptions.lost_work
    if terms.checkpoint is None:
        interval, stall, extra = whole, 0.0, 0.0
    else:
        stall, extra = write_hours(terms.checkpoint)
        # A checkpoint is not begun before the one before it is written, whatever interval is stated.
        interval = min(max(interval_hours(terms.checkpoint, rate), extra), whole)
    return GangRunRisk(
        nominal_steps_per_hour=speed.steps_per_hour,
        relative_error=speed.relative_error,
        interruptions_per_hour=rate,
        recovery_hours=risk.recovery_hours,
        startup_hours=terms.restart_time / _HOUR,
        interval_hours=interval,
        stall_hours=stall,
        loss_extra_hours=extra,
        resumes=terms.checkpoint is not None,
        lost_work_hours=None if lost is None else lost / _HOUR,
    )
