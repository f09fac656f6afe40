"""Compute the remaining work of a job that ran: the job to place again, its candidates, cost and save interval.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.limits import Limits
from router.jobs.quantities import Moment
from router.jobs.spec import Job, Status
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.checkpoint_times import interval_hours
from router.planning.find.transfers import transfer_usd


def remaining_job(
    job: Job, steps_done: int, checkpoint_in: RegionId | None, as_of: datetime, data_in: Iterable[RegionId] = ()
) -> Job:
    """Return the job as it is to be placed again: not running, with ``steps_done`` confirmed.

    The checkpoint lies in ``checkpoint_in`` (None: there is none to move), its data in ``data_in`` too. Times that were
    relative are fixed as they stood when the plan was made (``as_of``). At least one step is left: a job that is placed
    again has still to end.
    """
    known = job.status.data_in if job.status is not None else ()
    status = Status(
        steps_done=max(0, min(steps_done, job.steps - 1)),
        checkpoint_in=checkpoint_in,
        data_in=tuple(sorted({*known, *data_in})),
    )
    fixed = {
        name: Moment(absolute=moment.at(as_of))
        for name, moment in (("earliest_start", job.earliest_start), ("deadline", job.deadline))
        if moment is not None
    }
    return job.model_copy(update={"status": status, **fixed})


def fits_reservations(candidate: Candidate, job: Job, now: datetime) -> bool:
    """Return whether all remaining work, begun now, lies within the dates of the candidate's reservations."""
    return candidate.covers(now, now + timedelta(hours=remaining_hours(job, candidate)))


def remaining_hours(job: Job, candidate: Candidate) -> float:
    """Return the hours of all remaining work on a candidate that are expected to be billed, start-up included."""
    steps = steps_to_do(job, running=candidate.running)
    started = 0.0 if candidate.running else candidate.startup_hours
    return started + steps * candidate.billed_share / candidate.steps_per_hour


def moves_usd(candidate: Candidate, limits: Limits) -> Usd:
    """Return the cost of moving what the candidate needs, at the tier where the limits file says this month stands.

    Free allowances are not counted on.
    """
    return Usd.total(transfer_usd(t.tariff, t.volume_bytes, limits) for t in candidate.transfers if not t.free)


def remaining_usd(job: Job, candidate: Candidate, limits: Limits) -> Usd:
    """Return the expected dollars of all remaining work on a candidate: start-up, run, fallback, moves."""
    compute = candidate.usd_per_hour.over(timedelta(hours=remaining_hours(job, candidate)))
    reserved = steps_to_do(job, running=candidate.running) / candidate.on_time_steps_per_hour
    fallback = Usd(round(candidate.fallback_usd_per_reserved_hour * reserved * 1e9))
    return compute + fallback + moves_usd(candidate, limits)


def interval_at(job: Job, interruptions_per_hour: float, *, lost: int = 0) -> timedelta | None:
    """Return how often a job is to save at a known interruption rate; None for a job that cannot.

    A gang of several offers has the sum of its parts' rates. ``lost``: how often work of the job was lost because a
    checkpoint was not done in time. Each counts as one more interruption in the time in which one is expected, so that
    the next interval is shorter, unless the job states its own.
    """
    if job.checkpoint is None:
        return None
    return timedelta(hours=interval_hours(job.checkpoint, interruptions_per_hour * (1 + lost)))
