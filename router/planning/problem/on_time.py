"""Work out how probable it is that a job is done in the time its runs reserve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from router.jobs import goodput
from router.jobs.goodput import GangRunRisk
from router.jobs.spec import Job, is_less_sure
from router.planning.find.gang_rates import GUARD_MARGIN_HOURS
from router.planning.problem.schedule import ScheduledRun


def on_time_probability_of(job: Job, runs: Sequence[ScheduledRun], until: datetime | None = None) -> float | None:
    """Return the probability that the job is done within its reserved time, or within what lies before ``until``.

    None without a deadline or when the job is left out. Of a guarded run it is what its guard leaves to chance; runs on
    several candidates are late if any of them is. A guard that acts at its last moment leaves its margin, of which the
    controller needs half: the other half is there for runs without a guard.
    """
    if job.deadline is None or not runs:
        return None
    in_time = until is None or all(run.end <= until for run in runs)
    guards = {c.key: c.guard for c in (run.candidate for run in runs) if c.guard is not None and in_time}
    late = float(sum(1 - guard.on_time_probability for guard in guards.values()))
    alone = [run for run in runs if run.candidate.key not in guards]
    if guards:
        late += 1 - _alone_probability(alone, until, GUARD_MARGIN_HOURS / 2) if alone else 0.0
        return max(0.0, round(1 - late, 12))
    return _alone_probability(runs, until)


def unsure_jobs(jobs: Iterable[Job], runs: Mapping[str, tuple[ScheduledRun, ...]]) -> tuple[Job, ...]:
    """Return the jobs whose probability of being on time is below their confidence."""
    placed = ((job, runs.get(job.name, ())) for job in jobs)
    return tuple(job for job, own in placed if is_less_sure(on_time_probability_of(job, own), job.confidence))


def _alone_probability(runs: Sequence[ScheduledRun], until: datetime | None, spare_hours: float = 0.0) -> float:
    """Return the probability that runs without a guard are done in the time reserved, or in what of it is before.

    ``spare_hours`` are there for them beside that.
    """
    steps: dict[str, float] = {}
    risks: dict[str, GangRunRisk] = {}
    for run in runs:
        key = run.candidate.key
        steps[key] = steps.get(key, 0.0) + run.steps
        risks[key] = run.candidate.risk
    hours = sum(_productive_until(run, until).total_seconds() for run in runs) / 3600
    if hours <= 0:
        return 0.0
    parts = tuple((risks[key], count) for key, count in sorted(steps.items()) if count > 0)
    return min(1.0, round(goodput.on_time_probability_in_turn(parts, hours + spare_hours), 12))


def _productive_until(run: ScheduledRun, until: datetime | None) -> timedelta:
    """Return the run's time of work before a moment, after its start-up; all of it where the moment is None."""
    if until is None or run.end <= until:
        return run.productive
    held = max(timedelta(0), until - run.start) * run.share
    return min(run.productive, max(timedelta(0), held - run.startups * run.candidate.startup))
