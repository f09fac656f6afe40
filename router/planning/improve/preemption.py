"""Say which running jobs a plan pauses, moves or leaves out, for which other jobs, and what the restart costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.plan import PlannedMove, Preemption, PreemptionKind
from router.planning.find.allowances import team_allowances
from router.planning.improve.stays import Stay, stay_of
from router.planning.problem.precedence import goes_on
from router.planning.problem.schedule import ScheduledRun
from router.planning.program.solve import PlacementSolution

_SLACK = 1e-6


def preemptions(answer: PlacementSolution, moves: Sequence[PlannedMove]) -> Mapping[str, Preemption]:
    """Return by job what happens to running jobs that do not go on because others hold what they would need.

    ``moves`` are all moves of the plan.
    """
    problem = answer.problem
    preemption_of_job = {}
    for job in problem.jobs:
        runs = answer.runs.get(job.name, ())
        stay = None if goes_on(runs) else stay_of(problem, job)
        takers = () if stay is None else _takers(answer, stay)
        if takers:
            restart = _restart_usd(runs, [move for move in moves if move.job == job.name]) if runs else None
            preemption_of_job[job.name] = Preemption(what=_what(runs), by=takers, restart_usd=restart)
    return preemption_of_job


def _what(runs: Sequence[ScheduledRun]) -> PreemptionKind:
    if not runs:
        return "left out"
    return "paused" if all(run.candidate.running for run in runs) else "moved"


def _restart_usd(runs: Sequence[ScheduledRun], moves: Sequence[PlannedMove]) -> Usd:
    """Return the cost of the start-ups that the job would not have where it runs, and of its moves."""
    starts = (
        part.offer.usd_per_hour.times(part.machines).over(
            timedelta(seconds=round(run.startups * run.candidate.startup.total_seconds(), 6))
        )
        for run in runs
        for part in run.candidate.parts
    )
    return Usd.total([*starts, *(move.cost_usd for move in moves)])


def _takers(answer: PlacementSolution, stay: Stay) -> tuple[str, ...]:
    """Return the jobs that go first and hold what the stay would need, or spend its team's budget where it has room."""
    problem, job = answer.problem, stay.job
    first = [other for other in problem.jobs if other is not job and _goes_first(answer, other, job)]
    needs = problem.use[job.name, stay.holds[0].key]
    held = {limit: {hold.slot.index: amount * hold.share for hold in stay.holds} for limit, amount in needs.items()}
    used: dict[tuple[str, int], dict[str, float]] = {}
    for name, holds in answer.holdings.items():
        for hold in holds if name != job.name else ():
            for limit, amount in problem.use[name, hold.key].items():
                if hold.slot.index in held.get(limit, {}):
                    place = used.setdefault((limit, hold.slot.index), {})
                    place[name] = place.get(name, 0.0) + amount * hold.share
    crowded = {
        name
        for (limit, slot), takers in used.items()
        if sum(takers.values()) + held[limit][slot] > problem.shared[limit].amount + _SLACK
        for name in takers
    }
    takers = [other.name for other in first if other.name in crowded]
    if not takers and job.team in team_allowances(problem.limits):
        takers = [other.name for other in first if other.team == job.team and other.name in answer.runs]
    return tuple(sorted(takers))


def _goes_first(answer: PlacementSolution, other: Job, job: Job) -> bool:
    """Return whether the other job may take what the running one holds."""
    late = answer.problem.late
    if (other.name in late) != (job.name in late):
        return job.name in late
    if other.name in answer.problem.stays or other.priority > job.priority:
        return True
    return other.priority == job.priority and goes_on(answer.runs.get(other.name, ()))
