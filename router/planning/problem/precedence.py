"""Order the jobs by who is left out last: those that must stay, then by priority, and there those that run first.

A plan is first judged by its levels: jobs that must stay; then, in this order for each priority from the highest,
running jobs left out, other jobs left out by band of their teams. Where late jobs are planned beside others, those
that were placed in time come before all others, and the late ones after them. Design note rules-of-the-plan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from router.jobs.spec import Job
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun, starts_of


@dataclass(frozen=True, slots=True)
class Level:
    """Jobs of which the plan leaves out as few as it can before it looks at what comes after."""

    name: str
    jobs: tuple[str, ...]


STAYS, IN_TIME, WAITS, LATE = range(4)


def tier_key(problem: PlacementProblem, job: Job) -> tuple[int, int, int]:
    """Return the sort key of the job's tier: the first is left out last."""
    if job.name in problem.stays:
        return (STAYS, 0, 0)
    if job.name in problem.in_time:
        return (IN_TIME, 0, 0)
    running = job.status is not None and job.status.running is not None
    kind = LATE if job.name in problem.late else WAITS
    return (kind, -job.priority, 0 if running else problem.bands.get(job.team, 1))


def tiers_of(problem: PlacementProblem) -> tuple[tuple[Job, ...], ...]:
    """Return the jobs by tier, first those that are left out last; no tier is empty."""
    tiers: dict[tuple[int, int, int], list[Job]] = {}
    for job in problem.jobs:
        tiers.setdefault(tier_key(problem, job), []).append(job)
    return tuple(tuple(tiers[key]) for key in sorted(tiers))


def levels_of(problem: PlacementProblem) -> tuple[Level, ...]:
    """Return the levels by which plans are judged before their cost, in order; none is empty."""
    return tuple(
        Level(f"tier {_name(problem, tier[0])} left out", tuple(job.name for job in tier)) for tier in tiers_of(problem)
    )


def _name(problem: PlacementProblem, job: Job) -> str:
    """Return the name of the job's tier, as rows of the program have it."""
    kind, _, place = tier_key(problem, job)
    if kind == STAYS:
        return "that must stay"
    if kind == IN_TIME:
        return "placed in time"
    name = f"{job.priority}, late" if kind == LATE else f"{job.priority}"
    if not place:
        return f"{name} running"
    return f"{name}, band {place}" if problem.bands else name


def goes_on(runs: Sequence[ScheduledRun]) -> bool:
    """Return whether the runs are one that goes on from now, without a pause and without another start."""
    keys = {run.candidate.key for run in runs}
    return len(keys) == 1 and runs[0].candidate.running and starts_of(runs) == 0


def left_out_by_tier(problem: PlacementProblem, placed: Collection[str]) -> tuple[int, ...]:
    """Return the number of jobs of each tier that are not placed."""
    return tuple(sum(job.name not in placed for job in tier) for tier in tiers_of(problem))
