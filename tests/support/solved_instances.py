"""Random instances with their optimum, found by enumeration, and plans held against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from router.planning.document.plan import Plan
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from router.planning.planner import PlanRequest, make_plan
from tests.support.brute_force import Problem, Solution, enumerate_problem, greedy_in_turn, optimum
from tests.support.checker import check_plan
from tests.support.instances import Instance, make_instance
from tests.support.plan_agreement import SOLVER, value_of
from tests.support.precedence_rules import Levels


@dataclass(frozen=True)
class Solved:
    """``limit_binds``: the jobs, each within the limits alone, cannot all have what suits them best."""

    instance: Instance
    best: Solution
    greedy: Solution
    limit_binds: bool
    levels: Levels

    def levels_of(self, plan: Plan) -> tuple[int, ...]:
        """How many jobs a plan leaves out, level by level."""
        return self.levels.count(item.job for item in plan.unplaced)


def problem_of(instance: Instance) -> Problem:
    """Candidates' physics are taken from the planner as data; all else is worked out here."""
    finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=False)
    kept = {job.name: find_for_plan(finder, job)[0] for job in instance.jobs}
    return enumerate_problem(
        instance.jobs, kept, instance.book, instance.limits, instance.now, instance.horizon, instance.slot
    )


def solve(seed: int, make: Callable[[int], Instance] = make_instance) -> Solved:
    return solve_instance(make(seed))


def solve_instance(instance: Instance) -> Solved:
    problem = problem_of(instance)
    best = optimum(problem)
    binds = optimum(problem.without_limits()).better_than(best)
    return Solved(instance, best, greedy_in_turn(problem), binds, problem.levels)


def request_of(instance: Instance, **knobs: Any) -> PlanRequest:
    """What the planner is asked for an instance; ``knobs`` as in PlanRequest."""
    return PlanRequest(
        jobs=instance.jobs,
        book=instance.book,
        limits=instance.limits,
        now=instance.now,
        horizon=instance.horizon,
        slot=instance.slot,
        **knobs,
    )


def exact_request(instance: Instance, **knobs: Any) -> PlanRequest:
    """The request of an instance's optimum, candidates as the brute force sees them (no rounds of confidence)."""
    return request_of(
        instance, **{"gap": 0.0, "confidence_rounds": 0, "resolve_limits": 0, "explained": False, **knobs}
    )


def exact_plan(instance: Instance, **knobs: Any) -> Plan:
    return make_plan(exact_request(instance, **knobs))


def differences(solved: Solved, plan: Plan, gap: float = 0.0) -> list[str]:
    """Describe what is wrong with a plan that should be within the gap of the optimum."""
    instance, best = solved.instance, solved.best
    unplaced, value, bound = solved.levels_of(plan), value_of(plan), plan.bound_usd.dollars()
    rounding = rounding_of(instance)
    found = check_plan(plan, instance.jobs, instance.book, instance.limits, slot=instance.slot)
    if unplaced != best.unplaced:
        found.append(f"unplaced {unplaced}, optimum {best.unplaced}")
    elif value > best.value / (1 - gap) * (1 + SOLVER) + rounding:
        found.append(f"costs {value}, optimum {best.value}")
    elif value < best.value * (1 - SOLVER) - rounding:
        found.append(f"costs {value}, below the optimum {best.value}")
    elif bound > best.value * (1 + SOLVER) + rounding:
        found.append(f"bound {bound} above the optimum {best.value}")
    if plan.time_limit_hit:
        found.append("hit its time limit")
    return found


def false_claims(solved: Solved, plan: Plan) -> list[str]:
    """Describe what is wrong with the plan: to be dearer than the optimum is not, to claim less is."""
    instance, best = solved.instance, solved.best
    found = check_plan(plan, instance.jobs, instance.book, instance.limits, slot=instance.slot)
    out, bound, value = solved.levels_of(plan), plan.bound_usd.dollars(), value_of(plan)
    if out < best.unplaced:
        found.append(f"leaves out {out}, the least is {best.unplaced}")
    if plan.stage_one_proven and out != best.unplaced:
        found.append(f"says that {out} is proven, the least is {best.unplaced}")
    rounding = rounding_of(instance)
    if out == best.unplaced and bound > best.value * (1 + SOLVER) + rounding:
        found.append(f"bound {bound} above the optimum {best.value}")
    if out == best.unplaced and value < best.value * (1 - SOLVER) - rounding:
        found.append(f"costs {value}, below the optimum {best.value}")
    return found


def rounding_of(instance: Instance) -> float:
    """What cover leaves to pay may be near nothing: a run's times are rounded to the microsecond."""
    return 1e-6 if instance.limits.commitments else 1e-9


def judge_both(solved: Solved, **knobs: Any) -> list[str]:
    """Describe what is wrong with the plans of the compact program, which is exact, and by columns."""
    compact, columns = (exact_plan(solved.instance, **knobs, **more) for more in ({}, {"compact_jobs": 0}))
    return differences(solved, compact) + [f"columns: {words}" for words in false_claims(solved, columns)]
