"""Place jobs late that may be late and that nothing holds in time, after all jobs that are in time.

The plan is made as if no job might be late. Jobs that it leaves out get a later deadline, and all jobs are planned
again: those that were placed come before all others, and the late ones last. Design note rules-of-the-plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from router.jobs.quantities import Moment, is_beyond_planning
from router.jobs.spec import Job
from router.planning.document.plan import JobSummary, Lateness, Unplaced
from router.planning.find.candidate import least_hours
from router.planning.problem.on_time import on_time_probability_of
from router.planning.problem.precedence import tier_key
from router.planning.problem.problem import PlacementProblem, window
from router.planning.program.effort import Effort
from router.planning.program.planning_input import PlannedJobs, PlanningInput
from router.planning.program.single_runs import JobContext, contexts_of, soonest_run

LATE_JOBS = "late jobs"
MOST_ROUNDS = 4
_CROWDED = "the other jobs leave it no room until then"


@dataclass(frozen=True, slots=True)
class JobOrder:
    """The jobs that were placed in time, which come before all others, and the late ones, which come after them."""

    in_time: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()


PlanAgain = Callable[[tuple[Job, ...], JobOrder], PlannedJobs]


@dataclass(frozen=True)
class LatePlan:
    """The answer with late jobs in it; ``deadlines`` are the later ones that were tried, by job.

    ``declared`` has the jobs as their files have them, ``reasons`` why each does not fit in time. Without late jobs all
    three are empty, and everything is left as it is.
    """

    planned: PlannedJobs
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    declared: Mapping[str, Job] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def summaries(self, summaries: Iterable[JobSummary]) -> tuple[JobSummary, ...]:
        """Return the summaries with the deadlines of the job files, and with how late each job is."""
        return tuple(self._summary(each) if each.job in self.deadlines else each for each in summaries)

    def _summary(self, summary: JobSummary) -> JobSummary:
        job, answer = self.declared[summary.job], self.planned.answer
        assert job.deadline is not None
        deadline = job.deadline.at(answer.problem.now)
        summary = replace(summary, job_digest=job.digest, deadline=deadline)
        if summary.finish is None or summary.finish <= deadline:
            return summary
        late = Lateness(
            by_hours=(summary.finish - deadline) / timedelta(hours=1),
            planned_deadline=self.deadlines[summary.job],
            why=self.reasons.get(summary.job, _CROWDED),
        )
        probability = on_time_probability_of(job, answer.runs[summary.job], deadline)
        return replace(summary, late=late, on_time_probability=probability)

    def unplaced(self, unplaced: Iterable[Unplaced]) -> tuple[Unplaced, ...]:
        """Return the jobs left out; the reason of one that may be late says until when it was planned in vain."""
        return tuple(
            replace(each, reason=f"{each.reason}; planned until {self.deadlines[each.job]:%d %H:%MZ} it fits neither")
            if each.job in self.deadlines
            else each
            for each in unplaced
        )


def may_be_late(jobs: Iterable[Job]) -> bool:
    """Return whether some job is to be placed late where its deadline does not hold."""
    return any(job.may_be_late and job.deadline is not None for job in jobs)


def plan_late_jobs(first: PlannedJobs, plan_again: PlanAgain, effort: Effort, slot: timedelta) -> LatePlan:
    """Return the first answer with as many left-out jobs placed late as a few rounds find, by priority.

    An answer that leaves out a job of the first one is dropped, and the plan says that the phase was cut short. It
    says so too where time or work is used up.
    """
    jobs = first.planning_input.jobs
    in_time = frozenset(first.answer.runs)
    best, deadlines = first, dict[str, datetime]()
    for _ in range(MOST_ROUNDS):
        out = [job for job in jobs if may_be_late((job,)) and job.name not in best.answer.runs]
        if not out or effort.is_spent(LATE_JOBS):
            break
        later = _later_deadlines(out, first, best, deadlines, slot)
        if not later:
            break
        deadlines |= later
        moved = tuple(_with_deadline(job, deadlines.get(job.name)) for job in jobs)
        found = plan_again(moved, JobOrder(in_time, frozenset(deadlines)))
        if not in_time <= found.answer.runs.keys():
            effort.stopped(LATE_JOBS)
            break
        problem = found.answer.problem
        if _left_out(problem, jobs, found.answer.runs) < _left_out(problem, jobs, best.answer.runs):
            best = found
    return _as_declared(first, best, deadlines)


def _with_deadline(job: Job, deadline: datetime | None) -> Job:
    return job if deadline is None else job.model_copy(update={"deadline": Moment(absolute=deadline)})


def _left_out(problem: PlacementProblem, jobs: Iterable[Job], placed: Collection[str]) -> tuple[int, ...]:
    """Return how many jobs of each tier are left out; jobs that nothing could carry count too."""
    tiers: dict[tuple[int, int, int], int] = {}
    for job in jobs:
        key = tier_key(problem, job)
        tiers[key] = tiers.get(key, 0) + (job.name not in placed)
    return tuple(tiers[key] for key in sorted(tiers))


def _as_declared(first: PlannedJobs, best: PlannedJobs, deadlines: Mapping[str, datetime]) -> LatePlan:
    """Return the answer in which jobs that are left out all the same have their own deadlines and reasons again."""
    if not deadlines:
        return LatePlan(first)
    declared = {job.name: job for job in first.planning_input.jobs}
    known: PlanningInput = best.planning_input
    placed, reasons = best.answer.runs.keys(), first.planning_input.infeasible
    jobs = tuple(job if job.name in placed else declared[job.name] for job in known.jobs)
    infeasible = {**known.infeasible, **{name: why for name, why in reasons.items() if name not in placed}}
    planned = replace(best, planning_input=replace(known, jobs=jobs, infeasible=infeasible))
    return LatePlan(planned, deadlines, declared, reasons)


def _later_deadlines(
    out: Iterable[Job], first: PlannedJobs, best: PlannedJobs, tried: Mapping[str, datetime], slot: timedelta
) -> dict[str, datetime]:
    """Return the next deadline of each job that is left out; jobs that no later deadline helps are absent.

    A job that is infeasible alone is first given the time that it needs alone. Then, and for any other job, the soonest
    finish beside the jobs placed counts; where that was tried in vain, or is not known, twice the extra time.
    """
    problem, answer = best.planning_input.problem, best.answer
    later = {}
    for here in contexts_of(tuple(out), problem, answer):
        job, before = here.job, tried.get(here.job.name)
        if not problem.all_candidates[job.name]:
            continue
        alone = before is None and job.name in first.planning_input.infeasible
        asked = _soonest_edge(replace(here, load={}, mates_region=None) if alone else here, slot)
        if asked is None or (before is not None and asked <= before):
            asked = _twice_as_late(here, before, slot)
        if not is_beyond_planning(asked, problem.now):
            later[job.name] = asked
    return later


def _soonest_edge(here: JobContext, slot: timedelta) -> datetime | None:
    """Return the first edge of a slot after the soonest finish and the deadline; None where no run is found."""
    now = here.problem.now
    last = window(here.job, now)[1]
    best = soonest_run(here, here.problem.all_candidates[here.job.name])
    if best is None or best.finish is None or last is None:
        return None
    edge = _round_up(best.finish, now, slot)
    return edge if edge > last else None


def _twice_as_late(here: JobContext, before: datetime | None, slot: timedelta) -> datetime:
    """Return a deadline with twice the extra time tried before, first with the job's least time as the extra."""
    job, now = here.job, here.problem.now
    first, last = window(job, now)
    base = first if last is None else max(first, last)
    hours = least_hours(job, here.problem.all_candidates[job.name])
    extra = timedelta(hours=hours) if before is None else 2 * (before - base)
    return _round_up(base + max(extra, slot), now, slot)


def _round_up(moment: datetime, now: datetime, slot: timedelta) -> datetime:
    return now + math.ceil((moment - now) / slot - 1e-9) * slot


def order_problem(problem: PlacementProblem, order: JobOrder) -> PlacementProblem:
    """Return the problem with this order of its jobs."""
    return replace(problem, in_time=order.in_time, late=order.late) if order.late else problem
