"""Plans with late jobs against plans without them and against every possible one, by both planners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

import pytest

from router.jobs.quantities import Moment
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from router.planning.planner import make_plan
from tests.support.brute_force import Problem, enumerate_problem, optimum
from tests.support.checker import check_plan
from tests.support.instances import Instance, make_instance
from tests.support.precedence_rules import LateLevels, fair_bands
from tests.support.running_instances import make_running_instance, make_sharing_instance
from tests.support.solved_instances import problem_of, request_of

SOLVER = 1e-6  # what a solver's own tolerances may do to a proven optimum
_LONGER = 4  # slots that late jobs may take beyond the horizon of the instance
_MOST_PATTERNS = 60_000  # of one late job, beyond which a plan is not compared with all others


def make_late_instance(seed: int) -> Instance:
    """The instance of that seed with a longer horizon, in which most jobs may be late and many deadlines are near."""
    rng = Random(f"late jobs of {seed}")
    instance = (make_instance, make_running_instance, make_instance, make_sharing_instance)[seed % 4](seed)
    jobs = []
    for job in instance.jobs:
        near = Moment(absolute=instance.now + rng.choice((1, 1, 2)) * instance.slot)
        changes: dict[str, object] = {"late": "allowed"} if rng.random() < 0.7 else {}
        begins = job.earliest_start.at(instance.now) if job.earliest_start is not None else instance.now
        if rng.random() < 0.45 and near.at(instance.now) > begins:
            changes["deadline"] = near
        jobs.append(job.model_copy(update=changes))
    return replace(instance, jobs=tuple(jobs), horizon=instance.horizon + _LONGER * instance.slot)


@dataclass(frozen=True)
class LateFindings:
    """Faults of a plan, in words; the number of its late jobs, and whether all other plans were compared."""

    wrong: tuple[str, ...]
    late: int
    compared: bool


def judge(seed: int, *, compact_jobs: int = 30) -> LateFindings:
    """The plan of the instance against the plan in which no job may be late, and against every possible one."""
    instance = make_late_instance(seed)
    knobs = {"gap": 0.0, "confidence_rounds": 0, "resolve_limits": 0, "explained": False, "compact_jobs": compact_jobs}
    never = tuple(job.model_copy(update={"late": "never"}) for job in instance.jobs)
    first = make_plan(request_of(replace(instance, jobs=never), **knobs))
    plan = make_plan(request_of(instance, **knobs))
    late = {summary.job: summary.late.planned_deadline for summary in plan.jobs if summary.late is not None}
    wrong = check_plan(plan, instance.jobs, instance.book, instance.limits, slot=instance.slot)
    out, out_before = ({each.job for each in each_plan.unplaced} for each_plan in (plan, first))
    allowed = {job.name for job in instance.jobs if job.late == "allowed"}
    least = optimum(problem_of(instance))
    if out - out_before:
        wrong.append(f"{out - out_before} are left out, and had been placed in time")
    if out | late.keys() != out_before:
        wrong.append(f"late {sorted(late)} or out {sorted(out)}, without late jobs out {sorted(out_before)}")
    if compact_jobs and problem_of(instance).levels.count(out | late.keys()) != least.unplaced:
        wrong.append(f"late or out {sorted(out | late.keys())}, the least is {least.unplaced}")
    if not late.keys() <= allowed:
        wrong.append(f"late {sorted(late)}, allowed {sorted(allowed)}")
    if not out_before & allowed and first.lines != plan.lines:
        wrong.append("no job had to be late, and the plan is another one")
    problem = _late_problem(instance, plan, late)
    if problem is not None:
        wrong += _against_all_plans(problem, plan, out, proven=bool(compact_jobs))
    return LateFindings(tuple(wrong), len(late), problem is not None)


def _late_problem(instance: Instance, plan: Plan, late: dict[str, datetime]) -> Problem | None:
    """Everything that could be planned with the later deadlines; None where that is too much to enumerate."""
    jobs = tuple(_moved(job, late.get(job.name)) for job in instance.jobs)
    finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=False)
    kept = {job.name: find_for_plan(finder, job)[0] for job in jobs}
    end = instance.now + instance.horizon
    for job in jobs:
        assert job.deadline is not None
        slots = (job.deadline.at(instance.now) - instance.now) / instance.slot
        if job.deadline.at(instance.now) > end or (len(kept[job.name]) + 1) ** (slots + 1) > _MOST_PATTERNS * 8:
            return None
        if job.name in late and (len(kept[job.name]) + 1) ** slots > _MOST_PATTERNS:
            return None
    may = {job.name for job in jobs if job.late == "allowed"}
    placed = {summary.job for summary in plan.jobs if summary.finish is not None}
    levels = LateLevels(
        jobs,
        fair_bands(instance.limits, jobs),
        in_time=frozenset(placed - late.keys()),
        late=frozenset(may - (placed - late.keys())),
    )
    return enumerate_problem(
        jobs,
        kept,
        instance.book,
        instance.limits,
        instance.now,
        instance.horizon,
        instance.slot,
        levels=levels,
        displace_nobody=levels.late,
    )


def _moved(job: Job, deadline: datetime | None) -> Job:
    return job if deadline is None else job.model_copy(update={"deadline": Moment(absolute=deadline)})


def _against_all_plans(problem: Problem, plan: Plan, out: set[str], *, proven: bool) -> list[str]:
    """Return the plan's claims beyond the truth, under the later deadlines, and misses where it is ``proven``."""
    best, left_out, value, bound = optimum(problem), problem.levels.count(out), plan.objective_usd, plan.bound_usd
    if left_out < best.unplaced:
        return [f"leaves out {left_out}, the least is {best.unplaced}"]
    if left_out != best.unplaced:
        return [f"leaves out {left_out}, the least is {best.unplaced}"] if proven or plan.stage_one_proven else []
    found = []
    if bound.dollars() > best.value * (1 + SOLVER) + 1e-9:
        found.append(f"bound {bound} above the optimum {best.value}")
    if value.dollars() < best.value * (1 - SOLVER) - 1e-9:
        found.append(f"costs {value}, below the optimum {best.value}")
    if proven and value.dollars() > best.value * (1 + SOLVER) + 1e-6:
        found.append(f"costs {value}, optimum {best.value}")
    return found


FEW = range(1, 120, 22)
BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])


def wrong_plans(seeds: Iterable[int], compact_jobs: int) -> tuple[dict[int, tuple[str, ...]], int, int]:
    """Return faults by seed, the number of late jobs, and of plans with such that were compared with all others."""
    found = {seed: judge(seed, compact_jobs=compact_jobs) for seed in seeds}
    late = sum(each.late for each in found.values())
    compared = sum(each.compared for each in found.values() if each.late)
    return {seed: each.wrong for seed, each in found.items() if each.wrong}, late, compared


@BOTH
def test_late_jobs_displace_nobody_and_no_plan_with_them_is_better(compact_jobs: int) -> None:
    found, late, compared = wrong_plans(FEW, compact_jobs)
    assert found == {}
    assert (late >= 5, compared >= 3) == (True, True)


@pytest.mark.slow
@BOTH
def test_late_jobs_of_200_instances_displace_nobody(compact_jobs: int) -> None:
    found, late, compared = wrong_plans(range(200), compact_jobs)
    assert found == {}
    assert (late >= 80, compared >= 40) == (True, True)
