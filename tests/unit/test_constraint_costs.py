"""Costs of a job's rules, the others held in place: like is compared with like, and no rule pays for what it allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pricing.money import ZERO, Usd
from pricing.offers import Offer
from router.planning.document.costing import lines_of, moves_of
from router.planning.document.plan import ConstraintCost, JobSummary, Plan
from router.planning.explain.summary import summarise
from router.planning.planner import make_plan
from router.planning.program.effort import Effort
from router.planning.program.solve import with_holdings
from router.planning.program.solver import PulpSolver
from router.planning.what_if.constraint_prices import constraint_prices
from tests.support.made_up_book import offer
from tests.support.scenes import LAKE, NORTH, NORTH_SPOT, SOUTH, a_job, a_request, answer_of, input_of, plan_of

DATA = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 90}  # 96.6 GB; the first 100 GB that leave are free
BETTER = "a better place lies within the plan's gap: "


def cost_of(plan: Plan, name: str, rule: str) -> ConstraintCost:
    summary = next(job for job in plan.jobs if job.job == name)
    return next(cost for cost in summary.constraint_costs if cost.rule == rule)


def test_a_guarded_job_that_is_planned_alone_is_told_what_its_deadline_costs() -> None:
    """Its fallback on demand keeps the deadline: without it the plan costs as much less as is said."""
    request = a_request([a_job(deadline="+8h")], [replace(NORTH_SPOT, interruptions_per_hour=0.3), NORTH])
    plan = make_plan(request)
    (price,) = constraint_prices(request, "a")
    assert plan.lines[0].fallback is not None
    assert price.saves_usd.dollars() > 1
    assert cost_of(plan, "a", "deadline").saving_usd.dollars() == pytest.approx(price.saves_usd.dollars(), abs=0.01)


def test_a_run_that_ends_in_time_without_the_deadline_is_said_to_need_no_fallback() -> None:
    plan = plan_of([a_job(deadline="+40h")], [replace(NORTH_SPOT, interruptions_per_hour=1.0), NORTH])
    deadline = cost_of(plan, "a", "deadline")
    assert deadline.saving_usd > ZERO
    assert deadline.instead == "aws/north-1/p9.48xlarge/spotx8, with no fallback to keep it"


def test_a_move_beside_others_is_priced_alike_with_and_without_a_rule() -> None:
    """Two jobs share what leaves for nothing; alone each would pay nothing for its move, which no rule brings about."""
    jobs = [a_job(name, data=DATA, deadline="+9h", residency={"allow": ["US"]}) for name in ("a", "b")]
    plan = plan_of(jobs, [LAKE])
    assert all(move.cost_usd.dollars() > 4 for move in plan.moves)
    assert len(plan.moves) == 2
    for name in ("a", "b"):
        assert cost_of(plan, name, "deadline") == ConstraintCost("deadline", ZERO, "")
        assert cost_of(plan, name, "residency") == ConstraintCost("residency", ZERO, "")


def test_a_rule_that_makes_a_job_move_costs_what_the_move_adds_to_the_bill_of_the_others() -> None:
    """Each of two jobs is billed for half of what leaves; without the rule of one, the bill falls by its whole move."""
    there: dict[str, Any] = {"data": DATA, "residency": {"allow": ["gcp"]}}
    a, b = a_job("a", **there), a_job("b", **there)
    offers = [LAKE, offer("aws/north-1", "p9.48xlarge", "on_demand", "40.50")]
    plan, free = plan_of([a, b], offers), plan_of([a_job("a", data=DATA), b], offers)
    saving = cost_of(plan, "a", "residency").saving_usd
    assert saving.dollars() == pytest.approx((plan.cost_usd - free.cost_usd).dollars(), abs=1e-6)
    assert saving.dollars() > 6


def summary_at(worse: Offer, *, bound_usd: Usd) -> JobSummary:
    """The summary of a job for which the search ended at the worse of two offers, above that bound."""
    job = a_job(deadline="+9h", residency={"allow": ["US"]})
    answer = answer_of(a_request([job], [worse]))
    planning_input = input_of(a_request([job], [NORTH, SOUTH]))
    there = with_holdings(replace(answer, problem=planning_input.problem, bound_usd=bound_usd), answer.holdings)
    lines = lines_of(planning_input.problem, there.runs[job.name])
    moves = moves_of(planning_input.problem, there.runs)
    effort = Effort(PulpSolver(), timedelta(seconds=30))
    return summarise(planning_input, there, lines, moves, effort)[0][0]


def test_a_better_place_that_the_plan_missed_is_no_cost_of_a_rule_and_is_said_once() -> None:
    summary = summary_at(NORTH, bound_usd=Usd(100_000_000_000))
    assert {(cost.rule, cost.saving_usd, cost.instead) for cost in summary.constraint_costs} == {
        ("residency", ZERO, ""),
        ("deadline", ZERO, ""),
    }
    (note,) = (note for note in summary.notes if note.startswith(BETTER))
    assert (
        note
        == f"{BETTER}aws/south-1/p9.48xlarge/on_demandx8, done 2026-11-21 21:12Z, $32.04 less, other jobs held in place"
    )


def test_a_place_that_the_bound_excludes_is_not_said_to_lie_within_the_gap() -> None:
    """Something that a job alone does not show, as a commitment, then keeps it where it is."""
    summary = summary_at(NORTH, bound_usd=Usd(190_000_000_000))
    assert not any(note.startswith(BETTER) for note in summary.notes)
