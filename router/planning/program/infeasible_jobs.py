"""Say why a job has too little time on any of its candidates, whatever the other jobs do."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from pricing.units import to_percent
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.problem.problem import most_starts, window
from router.planning.program.single_runs import MAY_NOT_MOVE


def infeasible_reason(job: Job, candidates: tuple[Candidate, ...], now: datetime) -> str | None:
    """Return why no candidate is fast enough for the whole window, whatever the other jobs do; None where one is."""
    if most_starts(job) == 0 and not any(c.running for c in candidates):
        return f"{MAY_NOT_MOVE}, and that place is not among its offers now"
    if all(c.dates[1] is not None for c in candidates):
        return _short_reservations_reason(job, candidates, now)
    first, last = window(job, now)
    if last is None:
        return None
    hours = (last - first) / timedelta(hours=1)
    fastest = max(candidates, key=lambda c: (c.on_time_steps_per_hour, -c.usd_per_hour.nanos))
    least = steps_to_do(job, running=any(c.running for c in candidates)) / fastest.on_time_steps_per_hour
    if least <= hours:
        return _maintenance_reason(job, candidates, now) if any(c.closed for c in candidates) else None
    needed = f"{least:.1f} h needed on the fastest offer ({fastest.key})"
    if job.deadline is not None:
        needed += f" to be {to_percent(job.confidence)} sure"
    if job.may_be_late and hours <= 0:
        return f"no time is left: {needed}"
    return f"the deadline is too near: {needed}, {hours:.1f} h left"


def _short_reservations_reason(job: Job, candidates: tuple[Candidate, ...], now: datetime) -> str | None:
    """Return why reservations alone cannot carry the job; None where they can."""
    most = _most_steps(job, candidates, now)
    steps = steps_to_do(job, running=any(c.running for c in candidates))
    if most >= steps:
        return None
    return f"it fits only reservations, and within their dates {most:,.0f} of {steps:,} steps can be done"


def _maintenance_reason(job: Job, candidates: tuple[Candidate, ...], now: datetime) -> str | None:
    """Return why maintenance leaves a job with a deadline too little time; None where it does not."""
    most = _most_steps(job, candidates, now)
    steps = steps_to_do(job, running=any(c.running for c in candidates))
    if most >= steps:
        return None
    names = ", ".join(dict.fromkeys(window.name for c in candidates for window in c.closed))
    return f"no machines during maintenance {names}: {most:,.0f} of {steps:,} steps can be done by the deadline"


def _most_steps(job: Job, candidates: tuple[Candidate, ...], now: datetime) -> float:
    """Return the most steps that could be done: at each moment the fastest available candidate counts."""
    first, last = window(job, now)
    edges = {edge for c in candidates for edge in c.dates if edge is not None and edge > first} | {first}
    edges |= {edge for c in candidates for w in c.closed for edge in (w.start, w.until) if edge > first}
    times = sorted(edge for edge in edges if last is None or edge < last)
    max_steps = 0.0
    for begin, end in pairwise([*times, *([last] if last is not None else [])]):
        rates = [c.on_time_steps_per_hour for c in candidates if c.covers(begin, end)]
        max_steps += max(rates, default=0.0) * ((end - begin) / timedelta(hours=1))
    return max_steps
