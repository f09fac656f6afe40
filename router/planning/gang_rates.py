"""Compute a job's rates on a gang from its speed, its interruptions and what the job file states of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pricing.offers import Offer
from pricing.places import Market
from router.jobs import goodput
from router.jobs.goodput import GangRunRisk
from router.jobs.spec import Job
from router.jobs.speed import Speed
from router.planning.checkpoint_times import interval_hours, write_hours
from router.planning.feasibility import ListingRefusal

LONGEST_RUN = timedelta(days=90)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class GangRates:
    """A job's rates on a gang: goodput, the same with its confidence, the share billed, and the risk behind them."""

    steps_per_hour: float
    on_time_steps_per_hour: float
    billed_share: float
    risk: GangRunRisk


@dataclass(frozen=True, slots=True)
class GangInterruptions:
    """The interruptions of a gang: how often in an hour, and the unbilled wait after each."""

    per_hour: float
    recovery_hours: float


class _Part(Protocol):
    @property
    def offer(self) -> Offer: ...


def stated_rate(job: Job, parts: Iterable[_Part]) -> float | None:
    """Return the interruptions an hour that the job file states of a gang; None where it states none.

    A statement is on gangs with spot machines. It goes before the book and before what earlier runs showed.
    """
    stated = None if job.interruptions is None else job.interruptions.per_hour
    return stated if any(part.offer.market is Market.SPOT for part in parts) else None


def gang_rates(job: Job, speed: Speed, interruptions: GangInterruptions, steps: int) -> GangRates | ListingRefusal:
    """Return the job's rates on a gang, or why it is too slow or too risky."""
    risk = goodput.round_risk(_risk(job, speed, interruptions, steps))
    expected = goodput.to_digits(goodput.expected_steps_per_hour(risk))
    if expected * (LONGEST_RUN / _HOUR) < steps:
        days = math.inf if expected == 0 else steps / expected / 24
        return ListingRefusal("too slow", f"{days:,.0f} days of run time: over {LONGEST_RUN.days}")
    on_time = expected
    if job.deadline is not None:
        on_time = goodput.to_digits(goodput.on_time_steps_per_hour(risk, steps, job.confidence))
        if on_time <= 0:
            return ListingRefusal("too risky", f"no finish time is {job.confidence:.0%} sure")
    return GangRates(expected, on_time, goodput.to_digits(goodput.billed_share(risk)), risk)


def _risk(job: Job, speed: Speed, interruptions: GangInterruptions, steps: int) -> GangRunRisk:
    rate, whole = interruptions.per_hour, steps / speed.steps_per_hour
    lost = None if job.interruptions is None else job.interruptions.lost_work
    if job.checkpoint is None:
        interval, stall, extra = whole, 0.0, 0.0
    else:
        stall, extra = write_hours(job.checkpoint)
        # A checkpoint is not begun before the one before it is written, whatever interval is stated.
        interval = min(max(interval_hours(job.checkpoint, rate), extra), whole)
    return GangRunRisk(
        nominal_steps_per_hour=speed.steps_per_hour,
        relative_error=speed.relative_error,
        interruptions_per_hour=rate,
        recovery_hours=interruptions.recovery_hours,
        startup_hours=job.restart_time / _HOUR,
        interval_hours=interval,
        stall_hours=stall,
        loss_extra_hours=extra,
        resumes=job.checkpoint is not None,
        lost_work_hours=None if lost is None else lost / _HOUR,
    )
