"""Stages and status words: who is placed first, and what a plan admits when the solver did not finish."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pricing.money import Usd
from router.planning.document.plan import Cut, Plan
from router.planning.planner import make_plan
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.solve import PlacementSolution, solve_in_stages
from router.planning.program.solver import LpRelaxation, PulpSolver, Solution
from router.planning.rules.program import Program
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, SOUTH, a_job, a_request, plan_of, problem_of

Change = Callable[[Solution], Solution]
ONE = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=1)


def as_found(solution: Solution) -> Solution:
    return solution


def nothing_in_time(_: Solution) -> Solution:
    return Solution("unknown", (), math.inf, -math.inf, True, 0.0)


def infeasible(_: Solution) -> Solution:
    return Solution("infeasible", (), math.inf, -math.inf, False, 0.0)


def cut_short(solution: Solution) -> Solution:
    return replace(solution, outcome="feasible", bound=solution.objective / 2, hit_time_limit=True)


def without_bound(solution: Solution) -> Solution:
    return replace(solution, outcome="feasible", bound=-math.inf, hit_time_limit=True)


class Scripted:
    """HiGHS, with each answer changed in turn; the last change goes on for ever."""

    name = "scripted"

    def __init__(self, *changes: Change) -> None:
        self._changes = list(changes)
        self._solver = PulpSolver()
        self.solved = 0

    def solve(
        self,
        program: Program,
        gap: float,
        seconds: float,
        start: Mapping[int, float] | None = None,
        nodes: int | None = None,
    ) -> Solution:
        self.solved += 1
        change = self._changes.pop(0) if len(self._changes) > 1 else self._changes[0]
        return change(self._solver.solve(program, gap, seconds, start, nodes))

    def relax(self, program: Program, seconds: float) -> LpRelaxation:
        return self._solver.relax(program, seconds)


def planned(*changes: Change, jobs: Any = None, **knobs: Any) -> Plan:
    request = a_request(jobs or [a_job()], [NORTH, SOUTH], resolve_limits=0, **knobs)
    return make_plan(request, solver=Scripted(*changes))


def test_a_finished_search_is_optimal() -> None:
    plan = planned(as_found)
    assert (plan.status, plan.stage_one_proven, plan.time_limit_hit) == ("optimal", True, False)
    assert plan.solver == "scripted"
    assert 0 <= plan.gap < 1e-6


def test_a_search_cut_short_is_feasible_with_its_true_gap() -> None:
    plan = planned(cut_short)
    assert (plan.status, plan.time_limit_hit) == ("feasible", True)
    assert plan.gap == pytest.approx(0.5, abs=1e-6)
    assert plan.unplaced == ()


def test_a_cut_within_the_gap_asked_for_is_optimal_and_says_that_time_ran_out() -> None:
    plan = planned(cut_short, gap=0.51)
    assert (plan.status, plan.time_limit_hit) == ("optimal", True)


def test_no_bound_at_all_is_a_bound_of_zero() -> None:
    plan = planned(without_bound)
    assert (plan.status, plan.bound_usd, plan.gap) == ("feasible", Usd(0), 1.0)


def test_nothing_found_in_time_leaves_the_plan_made_without_the_solver_and_a_bound_without_it() -> None:
    # One machine is cheap: only one of the two jobs can have it, and the bound cannot know that.
    cheaper = offer("aws/alps-1", "p9.48xlarge", "on_demand", "40", cap=1)
    request = a_request([a_job("a", deadline="+4h"), a_job("b", deadline="+4h")], [cheaper, NORTH], resolve_limits=0)
    plan = make_plan(request, solver=Scripted(nothing_in_time))
    assert (plan.status, plan.time_limit_hit, plan.stage_one_proven) == ("feasible", True, True)
    assert plan.unplaced == ()
    cheap, dear = sorted(job.cost_usd for job in plan.jobs)
    assert plan.bound_usd.dollars() == pytest.approx(2 * cheap.dollars())
    assert plan.cost_usd == cheap + dear > plan.bound_usd


def test_nothing_found_within_the_count_of_nodes_is_said_as_well() -> None:
    plan = planned(lambda _: Solution("unknown", (), math.inf, -math.inf, False, 0.0), jobs=[a_job(budget="$5")])
    assert (plan.status, plan.time_limit_hit, plan.stage_one_proven) == ("time_limit", True, False)
    assert plan.cuts == (Cut("placement", "work"),)


def test_a_proven_impossibility_is_infeasible() -> None:
    plan = plan_of([a_job(deadline="+1h")], [NORTH])
    assert (plan.status, plan.stage_one_proven, plan.time_limit_hit) == ("infeasible", True, False)
    assert "the deadline is too near" in plan.unplaced[0].reason
    poor = plan_of([a_job(budget="$5")], [NORTH])
    assert (poor.status, poor.stage_one_proven) == ("infeasible", True)


def test_a_solver_that_calls_the_possible_impossible_is_not_believed() -> None:
    """Everybody together is not possible, says the solver; the plan made without it shows that it is."""
    plan = planned(infeasible)
    assert plan.unplaced == ()
    assert 0 < plan.bound_usd.nanos <= plan.cost_usd.nanos


def test_a_first_attempt_without_answer_leaves_the_tiers_to_decide() -> None:
    plan = planned(nothing_in_time, as_found)
    assert (plan.unplaced, plan.stage_one_proven) == ((), True)
    assert plan.time_limit_hit


def test_a_last_stage_without_answer_keeps_the_placement_that_is_known() -> None:
    plan = planned(nothing_in_time, as_found, nothing_in_time)
    assert plan.unplaced == ()
    assert plan.time_limit_hit
    assert 0 < plan.bound_usd.nanos <= plan.cost_usd.nanos


def test_a_tier_that_was_cut_short_is_not_proven() -> None:
    jobs = [a_job(name, deadline="+4h") for name in "ab"]
    request = a_request(jobs, [ONE], resolve_limits=0)
    plan = make_plan(request, solver=Scripted(infeasible, cut_short, as_found))
    assert (plan.status, plan.stage_one_proven) == ("feasible", False)
    assert plan.time_limit_hit


@pytest.mark.parametrize(("first", "second", "left"), [(0, 5, "a"), (5, 0, "b")])
def test_priority_decides_who_is_left_out(first: int, second: int, left: str) -> None:
    jobs = [a_job("a", deadline="+4h", priority=first), a_job("b", deadline="+4h", priority=second)]
    plan = plan_of(jobs, [ONE])
    assert [u.job for u in plan.unplaced] == [left]
    assert (plan.status, plan.stage_one_proven) == ("optimal", True)


def test_one_important_job_beats_two_others() -> None:
    big = a_job("big", steps=700, deadline="+8h", priority=1)
    small = [a_job(name, steps=300, deadline="+8h") for name in ("s1", "s2")]
    plan = plan_of([big, *small], [ONE])
    assert [u.job for u in plan.unplaced] == ["s1", "s2"]


def test_jobs_of_one_tier_are_left_out_as_few_as_possible() -> None:
    big = a_job("big", steps=700, deadline="+8h")
    small = [a_job(name, steps=300, deadline="+8h") for name in ("s1", "s2")]
    plan = plan_of([big, *small], [ONE])
    assert [u.job for u in plan.unplaced] == ["big"]


def answer_by(solver: Any, jobs: Any) -> PlacementSolution:
    problem = problem_of(a_request(jobs, [NORTH, SOUTH]))
    return solve_in_stages(problem, formulate(problem), Effort(solver, timedelta(seconds=10)), 0.0)


def test_one_solve_is_enough_where_all_can_be_placed() -> None:
    solver = Scripted(as_found)
    answer = answer_by(solver, [a_job("a"), a_job("b", priority=3)])
    assert (solver.solved, sorted(answer.runs)) == (1, ["a", "b"])
    assert answer.bound_usd <= answer.spent


def test_no_jobs_are_no_program() -> None:
    solver = Scripted(nothing_in_time)
    answer = answer_by(solver, [])
    assert (solver.solved, answer.runs, answer.stage_one_proven) == (0, {}, True)
