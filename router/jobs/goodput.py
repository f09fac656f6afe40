"""Compute what checkpoints and interruptions leave of a gang's speed, and its finish time with a stated probability.

Pure mathematics in hours; formulas and their sources stand at each function. Durations are exponential between
interruptions (rate ``interruptions_per_hour`` while running), a restart takes ``recovery_hours`` that are not billed
and ``startup_hours`` that are billed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pricing.units import to_digits

_FAR: Final = 40.0  # standard deviations beyond which floats hold only 0 and 1
_ROOT_HALF: Final = math.sqrt(0.5)
_ROOT_PI: Final = math.sqrt(math.pi)
_erfc = np.frompyfunc(math.erfc, 1, 1)

_MAX_INTERRUPTIONS = 1e5  # if more are expected before the work is done, it is taken to be never done
_MAX_LOAD = 500.0  # interruptions expected in a segment and its write, above which no segment is taken to last
_TAIL_DEVIATIONS = 10  # counts of interruptions further out than this many standard deviations are left out
_MAX_LOST_SHARE = 0.99  # of running time, above which repeated work is taken never to end
_TAIL_EXPONENT = 40.0  # exp(-40) is beyond the digits of a float beside 1
_NEWTON, _DIGITS = 20, 4e-16  # the most steps of Newton's method, and the step size at which it ends
_NORMAL: Final = NormalDist()
_BESIDE = 1e-9  # share of an answer within which its side is not taken for known
_LEAST_SHARE = 0.2  # no run takes less than this share of its expected time
_CERTAIN = 1e-6  # the least standard deviation of a finish time, as a share of it


@dataclass(frozen=True, slots=True)
class GangRunRisk:
    """The parameters of one gang on one offer for one job. All times in hours, speed in steps an hour.

    ``interval_hours`` is compute time between checkpoints (the whole job where it has none: then ``resumes`` is False),
    ``stall_hours`` the time a checkpoint stops compute, ``loss_extra_hours`` the time after that until it is durable:
    an asynchronous write, in which training goes on and an interruption loses the segment before it as well.
    ``lost_work_hours``, where it is stated, is what each interruption loses instead of that, as where a checkpoint is
    saved on notice. ``startup_hours`` are those of a restart, which may differ from those of a first start.
    """

    nominal_steps_per_hour: float
    relative_error: float
    interruptions_per_hour: float
    recovery_hours: float
    startup_hours: float
    interval_hours: float
    stall_hours: float
    loss_extra_hours: float
    resumes: bool
    lost_work_hours: float | None = None

    @property
    def mean_loss_hours(self) -> float:
        """Return the hours of running that an interruption loses: as stated, else half an interval and the write."""
        if self.lost_work_hours is not None:
            return self.lost_work_hours
        return self.interval_hours / 2 + self.loss_extra_hours

    @property
    def restart_hours(self) -> float:
        """Return the hours of a restart: detection, waiting for capacity, boot, restore, warm-up."""
        return self.recovery_hours + self.startup_hours


_FIGURES: Final = tuple(each.name for each in fields(GangRunRisk) if each.name != "resumes")


def round_risk(risk: GangRunRisk) -> GangRunRisk:
    """Return the same risk with every figure rounded (:func:`~pricing.units.to_digits`)."""
    stated = {name: getattr(risk, name) for name in _FIGURES}
    figures: dict[str, Any] = {name: None if figure is None else to_digits(figure) for name, figure in stated.items()}
    return GangRunRisk(resumes=risk.resumes, **figures)


def replace_rate(risk: GangRunRisk, interruptions_per_hour: float) -> GangRunRisk:
    """Return the same run at another rate of interruptions."""
    return replace(risk, interruptions_per_hour=interruptions_per_hour)


def normal_quantile(probability: float) -> float:
    """Return how many standard deviations a normal stays below with this probability."""
    return _NORMAL.inv_cdf(probability)


def best_interval_hours(interruptions_per_hour: float, stall_hours: float, least_hours: float) -> float:
    """Return the compute time between checkpoints that maximises the useful share.

    τ* = (1 + W0(-exp(-1 - λδ))) / λ with Lambert's W, the exact optimum for exponential interruptions (Young's
    sqrt(2δ/λ) and Daly's forms approximate it); at least ``least_hours`` (an asynchronous write must end before the
    next begins) and at least a minute.
    """
    exact = _above_branch(interruptions_per_hour * stall_hours) / interruptions_per_hour
    return max(exact, least_hours, 1 / 60)


def _above_branch(product: float) -> float:
    """Return x = 1 + W0(-exp(-1 - product)), which solves x + log(1 - x) = -product.

    Newton's method begins from the series at the branch point. Close to it all digits cancel; there x is sqrt(2
    product), Young's form.
    """
    root = math.sqrt(2 * product)
    if product < 1e-8:
        return root
    root = math.sqrt(-2 * math.expm1(-product))
    below_one = math.nextafter(1.0, 0.0)
    x = min(root - root**2 / 3 + 11 / 72 * root**3, 1 - math.exp(-1 - product), below_one)
    for _ in range(_NEWTON):
        by = (x + math.log1p(-x) + product) * (1 - x) / x
        x = min(x + by, below_one)
        if abs(by) <= _DIGITS * x:
            break
    return x


def useful_share(risk: GangRunRisk) -> float:
    """Return the expected share of wall time that becomes lasting progress.

    φ = λτ exp(-λW) / [(1 + λR)(exp(λ(τ + δ)) - 1)]: a life of T hours keeps the segments whose writes of W ended within
    it, floor((T - W) / (τ + δ)) of them. With a stated loss L a life keeps 1/λ - L of its 1/λ hours on average.
    """
    rate = risk.interruptions_per_hour
    if risk.lost_work_hours is not None:
        kept = max(0.0, 1 - rate * risk.lost_work_hours) / (1 + rate * risk.restart_hours)
        return kept * risk.interval_hours / (risk.interval_hours + risk.stall_hours)
    if rate * (risk.interval_hours + risk.stall_hours + risk.loss_extra_hours) > _MAX_LOAD:
        return 0.0
    return risk.interval_hours / ((1 / rate + risk.restart_hours) * _interruptions_per_segment(risk))


def _interruptions_per_segment(risk: GangRunRisk) -> float:
    """Return the expected interruptions for each segment that lasts: exp(λW)(exp(λ(τ + δ)) - 1).

    With a stated loss L, λ(τ + δ) / (1 - λL): every segment runs once, and each interruption makes L of it run again.
    """
    rate = risk.interruptions_per_hour
    if risk.lost_work_hours is not None:
        return rate * (risk.interval_hours + risk.stall_hours) / max(1 - rate * risk.lost_work_hours, 1e-9)
    failures = math.expm1(rate * (risk.interval_hours + risk.stall_hours))
    return failures * math.exp(rate * risk.loss_extra_hours)


def billed_share(risk: GangRunRisk) -> float:
    """Return the expected share of wall time that is billed: all but waiting for capacity.

    A life runs 1/λ and is followed by a restart of R, whatever it keeps, whence 1 - λ R_unbilled / (1 + λR).
    """
    rate = risk.interruptions_per_hour
    return 1 - rate * risk.recovery_hours / (1 + rate * risk.restart_hours)


@dataclass(frozen=True, slots=True)
class BilledShares:
    """The shares of billed run time, start-ups aside, that are lasting work, work lost, checkpoints and restarts.

    They add up to 1.
    """

    compute: float
    lost_work: float
    checkpoints: float
    restarts: float


def billed_shares(risk: GangRunRisk) -> BilledShares:
    """Return where the billed time of a run goes, in expectation.

    For each segment of τ + δ that lasts there are F = exp(λW)(exp(λ(τ+δ)) - 1) interruptions, F / λ of running and F
    restarts: τ lasts, δ is its checkpoint, the rest of F / λ is lost. Of a restart only the start-up is billed.
    """
    rate, segment = risk.interruptions_per_hour, risk.interval_hours + risk.stall_hours
    failures = _interruptions_per_segment(risk)
    lost = max(0.0, failures / rate - segment)
    restarts = failures * risk.startup_hours
    whole = segment + lost + restarts
    return BilledShares(risk.interval_hours / whole, lost / whole, risk.stall_hours / whole, restarts / whole)


def expected_steps_per_hour(risk: GangRunRisk) -> float:
    """Return goodput g: nominal speed times the useful share."""
    return risk.nominal_steps_per_hour * useful_share(risk)


@dataclass(frozen=True, slots=True)
class _FinishTime:
    """A mixture, over the number of interruptions, of normal finish times (hours)."""

    weights: NDArray[np.float64]
    centres: NDArray[np.float64]
    spreads: NDArray[np.float64]

    def probability_by(self, wall_hours: float) -> float:
        return float(self.weights @ ndtr((wall_hours - self.centres) / self.spreads))

    def density_at(self, wall_hours: float) -> float:
        deviations = (wall_hours - self.centres) / self.spreads
        return float(self.weights @ (np.exp(-0.5 * deviations * deviations) / self.spreads)) * _ROOT_HALF / _ROOT_PI


@lru_cache(maxsize=4096)
def _finish_time(risk: GangRunRisk, steps: float) -> _FinishTime:
    compute = steps / risk.nominal_steps_per_hour
    segments = max(compute / risk.interval_hours, 1e-9)
    segment = risk.interval_hours + risk.stall_hours
    rate = risk.interruptions_per_hour
    if risk.lost_work_hours is not None:
        return _finish_time_at_loss(risk, segments * segment, risk.lost_work_hours)
    load = rate * segment if not risk.loss_extra_hours else rate * (segment + risk.loss_extra_hours)
    if risk.loss_extra_hours and load <= _MAX_LOAD:
        # With a write beside the training a segment is kept as seldom as a longer one would be without.
        load = math.log1p(_interruptions_per_segment(risk))
    survive, failed = math.exp(-load), -math.expm1(-load)
    if segments * failed > _MAX_INTERRUPTIONS * survive:
        never = np.full(1, math.inf)
        return _FinishTime(np.ones(1), never, np.ones(1))
    mean = segments * failed / survive
    most = math.ceil(mean + _TAIL_DEVIATIONS * math.sqrt(mean / survive) + _TAIL_DEVIATIONS)
    counts = np.arange(most + 1, dtype=np.float64)
    # The log of gamma(n + m) / (gamma(n + 1) gamma(m)) is summed factor by factor.
    chosen = np.concatenate([[0.0], np.cumsum(np.log1p((segments - 1) / counts[1:]))])
    log_weights = chosen - segments * load + counts * math.log(failed)
    lost_mean, lost_variance = _lost_hours(rate, segment, risk.loss_extra_hours)
    run = segments * segment
    centres = run + counts * (lost_mean + risk.restart_hours)
    spread = float(run_share(risk.relative_error, 1.0)) - 1
    spreads = np.sqrt((run * max(spread, _CERTAIN)) ** 2 + counts * lost_variance)
    return _FinishTime(np.exp(log_weights), centres, spreads)


def _finish_time_at_loss(risk: GangRunRisk, run: float, loss: float) -> _FinishTime:
    """Return the finish time of ``run`` hours where each interruption makes ``loss`` of them run again.

    Interruptions hit repeated work as well, so their number is that of a busy period (Borel-Tanner, a generalised
    Poisson): P(n) = a (a + nb)^(n-1) exp(-a - nb) / n! with a = λ run and b = λ loss.
    """
    a, b = risk.interruptions_per_hour * run, risk.interruptions_per_hour * loss
    if b > _MAX_LOST_SHARE or a > _MAX_INTERRUPTIONS * (1 - b):
        return _FinishTime(np.ones(1), np.full(1, math.inf), np.ones(1))
    mean = a / (1 - b)
    # Probabilities fall at least as exp(-n (b - 1 - log b)) far out.
    tail = _TAIL_EXPONENT / (b - 1 - math.log(b)) if b > 0 else 0.0
    most = math.ceil(mean + _TAIL_DEVIATIONS * math.sqrt(mean) / (1 - b) + _TAIL_DEVIATIONS + tail)
    counts = np.arange(most + 1, dtype=np.float64)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    log_weights = math.log(a) + (counts - 1) * np.log(a + counts * b) - a - counts * b - log_factorials
    centres = run + counts * (loss + risk.restart_hours)
    spread = float(run_share(risk.relative_error, 1.0)) - 1
    spreads = np.full(most + 1, run * max(spread, _CERTAIN))
    return _FinishTime(np.exp(log_weights), centres, spreads)


def _lost_hours(rate: float, segment: float, write: float) -> tuple[float, float]:
    """Return mean and variance of the hours of running that an interruption loses.

    Without a write they are those of an exponential cut off at the segment. With one, a life that ends before its first
    checkpoint is durable loses all of itself, and any other the write and the part of a segment.
    """
    mean, variance = _truncated_moments(rate, segment)
    if not write:
        return mean, variance
    early_mean, early_variance = _truncated_moments(rate, segment + write)
    kept = math.exp(-rate * (segment + write))
    late_mean = write + mean
    mean = kept * late_mean + (1 - kept) * early_mean
    return mean, kept * variance + (1 - kept) * early_variance + kept * (1 - kept) * (late_mean - early_mean) ** 2


def _truncated_moments(rate: float, limit: float) -> tuple[float, float]:
    """Return mean and variance of an exponential that is known to be below ``limit``."""
    survive, failed = math.exp(-rate * limit), -math.expm1(-rate * limit)
    return 1 / rate - limit * survive / failed, max(1 / rate**2 - limit**2 * survive / failed**2, 0.0)


def run_share(relative_error: float, deviations: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the duration of a run over its expected duration, where the error of its speed is ``deviations`` off.

    The unit of ``deviations`` is the standard deviation. The time is normal about the expected one, for plans and
    quotes alike: the mean run takes what the expected speed says, and none less than a fifth of that.
    """
    return np.maximum(1 + relative_error * np.asarray(deviations, dtype=np.float64), _LEAST_SHARE)


def on_time_probability(risk: GangRunRisk, steps: float, wall_hours: float) -> float:
    """Return P(``steps`` are done within ``wall_hours`` after the first start-up).

    The number of interruptions is negative binomial (each of m segments succeeds with exp(-λ(τ+δ))); each costs the
    restart and the part of a segment that was lost (a truncated exponential, by its two moments); the error of the
    speed is normal. Summed over the number of interruptions.
    """
    return _finish_time(risk, steps).probability_by(wall_hours)


@lru_cache(maxsize=65536)
def hours_with_probability(risk: GangRunRisk, steps: float, probability: float) -> float:
    """Return the least wall hours after the first start-up in which ``steps`` are done with ``probability``.

    It is found by bisection, whose steps far from the answer follow from where Newton's method finds it. Infinite where
    interruptions come so fast that the work is never done.
    """
    finish = _finish_time(risk, steps)
    if not math.isfinite(finish.centres[0]):
        return math.inf
    low, high = 0.0, steps / expected_steps_per_hour(risk)
    while finish.probability_by(high) < probability:
        low, high = high, 2 * high
        if high > 1e7:
            return math.inf
    below, above = _bracket(finish, probability, low, high)
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        # Outside the bracket the side is known; inside it the probability itself decides.
        inside = below < middle < above
        if finish.probability_by(middle) < probability if inside else middle <= below:
            low = middle
        else:
            high = middle
    return high


def _bracket(finish: _FinishTime, probability: float, low: float, high: float) -> tuple[float, float]:
    """Return hours just before and just after those with the probability, by Newton's method from a normal guess."""
    mean = float(finish.weights @ finish.centres)
    variance = float(finish.weights @ (finish.spreads**2 + (finish.centres - mean) ** 2))
    x = mean + _NORMAL.inv_cdf(probability) * math.sqrt(max(variance, 0.0))
    for _ in range(_NEWTON):
        if not low < x < high:
            x = (low + high) / 2
        over = finish.probability_by(x) - probability
        low, high = (x, high) if over < 0 else (low, x)
        slope = finish.density_at(x)
        step = over / slope if slope > 0 else math.inf
        if abs(step) <= _BESIDE / 10 * x:
            break
        x -= step
    for edge in (x * (1 - _BESIDE), x * (1 + _BESIDE)):
        if low < edge < high:
            low, high = (edge, high) if finish.probability_by(edge) < probability else (low, edge)
    return low, high


def on_time_steps_per_hour(risk: GangRunRisk, steps: float, probability: float) -> float:
    """Return g(α): the speed at which ``steps`` are reached with total ``probability``.

    It is never above the expected speed.
    """
    return min(expected_steps_per_hour(risk), steps / hours_with_probability(risk, steps, probability))


_GRID = 2048


def on_time_probability_in_turn(parts: tuple[tuple[GangRunRisk, float], ...], wall_hours: float) -> float:
    """Return P(all parts, each ``(risk, steps)``, are done one after the other within ``wall_hours``).

    One part: as :func:`on_time_probability`. More: the finish times are taken as independent and convolved on a grid.
    """
    if len(parts) == 1:
        return on_time_probability(parts[0][0], parts[0][1], wall_hours)
    step = wall_hours / _GRID
    edges = np.arange(1, _GRID + 1) * step
    total: NDArray[np.float64] | None = None
    for risk, steps in parts:
        finish = _finish_time(risk, steps)
        below = ndtr((edges[:, None] - finish.centres) / finish.spreads) @ finish.weights
        mass = np.diff(below, prepend=0.0)
        total = mass if total is None else np.convolve(total, mass)[:_GRID]
    return float(total.sum()) if total is not None else 1.0


def ndtr(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return P(a standard normal is at most x), to the last digits in both tails; infinities give 0 and 1."""
    probabilities: NDArray[np.float64] = np.where(x > 0, 1.0, 0.0)
    near = np.abs(x) < _FAR
    probabilities[near] = 0.5 * np.asarray(_erfc(-_ROOT_HALF * x[near]), dtype=np.float64)
    return probabilities
