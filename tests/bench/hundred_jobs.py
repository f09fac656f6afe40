"""A night of many jobs, made from the example night: the same jobs again under other names, teams and dates.

Nothing is random: the same inputs give the same night on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from router.jobs.limits import Limit, Limits, Reservation
from router.jobs.quantities import Moment
from router.jobs.spec import Job
from router.planning.planner import PlanRequest
from tests.bench.nights import mid_size_request


def crowded_request(seed: int, kinds: int, count: int, **knobs: Any) -> PlanRequest:
    """The mid-size night of that seed with one machine of each offer.

    ``count`` copies of its first ``kinds`` jobs with a deadline that fit a machine are planned.
    """
    request = mid_size_request(seed, **knobs)
    small = [j for j in request.jobs if j.deadline and min(o.count for o in j.gang.options) <= 8]
    limits = request.limits.model_copy(update={"default_cap_machines": 1})
    return replace(request, limits=limits, jobs=many_jobs(small[:kinds], count, request.now))


# Copies differ, or the program would be full of symmetries that no real night has.
_PRIORITIES = (0, 1, 0, -1, 0)
_LONGER = (1.0, 1.1, 1.25, 1.4, 1.15, 1.3, 1.5)
_STEPS = (1.0, 0.85, 0.7, 0.95, 0.8, 0.65, 0.9, 0.75, 0.6, 1.05, 0.55)


def many_jobs(jobs: Sequence[Job], count: int, now: datetime) -> tuple[Job, ...]:
    """``count`` jobs with names of their own: first the given ones as they are, then copies, round after round.

    A copy of round k belongs to team ``TEAM-k``, runs nowhere yet, has its own share of the steps, and a deadline
    that is never nearer than its original's.
    """
    ordered = sorted(jobs, key=lambda job: job.name)
    return tuple(_copy(ordered[i % len(ordered)], i, i // len(ordered), now) for i in range(count))


def many_limits(limits: Limits, times: float) -> Limits:
    """Quotas, stock and reservations ``times`` as large (rounded up), a budget for every team of every round.

    All clouds are allowed, so that every offer is looked at. The cap on offers of unknown capacity stays: more
    jobs do not make a region larger.
    """
    rounds = math.ceil(times)
    return limits.model_copy(
        update={
            "clouds": None,
            "limits": tuple(_grown(limit, "amount", times) for limit in limits.limits),
            "reservations": tuple(_grown(reserved, "machines", times) for reserved in limits.reservations),
            "teams": tuple(
                team.model_copy(update={"team": _team(team.team, k)}) for team in limits.teams for k in range(rounds)
            ),
        }
    )


def _grown(entry: Limit | Reservation, field: str, times: float) -> Limit | Reservation:
    return entry.model_copy(update={field: math.ceil(getattr(entry, field) * times)})


def _team(team: str, k: int) -> str:
    return team if k == 0 else f"{team}-{k}"


def _copy(job: Job, index: int, k: int, now: datetime) -> Job:
    if k == 0:
        return job
    done = job.steps - job.steps_left
    left = max(1, round(job.steps_left * _STEPS[index % len(_STEPS)]))
    status = job.status.model_copy(update={"running": None}) if job.status is not None else None
    return job.model_copy(
        update={
            "name": f"{job.name[:60]}-{k}",
            "team": _team(job.team, k),
            "steps": done + left,
            "status": status,
            "priority": job.priority + _PRIORITIES[index % len(_PRIORITIES)],
            "deadline": _later(job.deadline, _LONGER[index % len(_LONGER)], now),
        }
    )


def _later(deadline: Moment | None, factor: float, now: datetime) -> Moment | None:
    if deadline is None:
        return None
    hours = math.ceil((deadline.at(now) - now) / timedelta(hours=1) * factor)
    return Moment(absolute=now + timedelta(hours=hours))
