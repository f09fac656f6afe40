"""Random instances with their optimum, found by enumeration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from router.planning.document.plan import Plan
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from router.planning.planner import PlanRequest
from tests.support.brute_force import Problem, Solution, enumerate_problem, greedy_in_turn, optimum
from tests.support.instances import Instance, make_instance
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
