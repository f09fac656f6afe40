"""Every placed job is as sure as it asks: what several offers leave too unsure runs on one, or is left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from router.app.plan import PlanOptions, plan_request
from router.planning.columns.search import solve_by_columns
from router.planning.document.plan import Plan
from router.planning.improve.split_jobs import replan_jobs
from router.planning.planner import PlanRequest, make_plan
from router.planning.problem.on_time import unsure_jobs
from router.planning.program.effort import Effort
from router.planning.program.solve import PlacementSolution
from router.planning.program.solver import PulpSolver
from router.planning.rules.load import load_of
from router.prices.books import load_book
from router.render import plan_text
from tests.bench.nights import realistic_night
from tests.support.checker import check_plan
from tests.support.committed_instances import committed_seeds, make_committed_instance
from tests.support.instances import make_instance
from tests.support.repository import ROOT
from tests.support.scenes import answer_of, problem_of
from tests.support.solved_instances import request_of as made_up_request

FIELD = ROOT.parent / "shared" / "field"
NOW = datetime(2026, 11, 23, tzinfo=UTC)
NIGHT = datetime(2026, 11, 21, 18, tzinfo=UTC)
SHOWN = 5e-4  # a probability is shown to a tenth of a point


def request_of(folder: Path) -> PlanRequest:
    options = PlanOptions(horizon=timedelta(hours=6), gap=0.0)
    request = plan_request([str(folder / "jobs.yaml")], str(folder / "book.csv"), folder / "limits.yaml", NOW, options)
    return request.request


def least_margin(plan: Plan) -> float:
    """Return by how much the least sure of the placed jobs is surer than it asks."""
    asked = [(j.on_time_probability, j.confidence) for j in plan.jobs if j.on_time_probability is not None and j.finish]
    return min((found - confidence for found, confidence in asked), default=1.0)


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
@pytest.mark.parametrize(
    "case", ["30-confidence-split-offers", "31-confidence-split-offers-2", "32-left-out-without-relaxation"]
)
@pytest.mark.parametrize("rounds", [1, 2])
def test_published_cases(case: str, rounds: int) -> None:
    request = replace(request_of(FIELD / case), confidence_rounds=rounds)
    plan = make_plan(request)
    assert not plan.unplaced
    assert least_margin(plan) >= -SHOWN
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []


@pytest.mark.parametrize("seed", [31, 106, 139, 173, 175, 194, 209, 251])
def test_made_up_nights(seed: int) -> None:
    """On each of these, several offers left a job less sure than it asks, or seemed to."""
    plan = make_plan(made_up_request(make_instance(seed), gap=0.0, confidence_rounds=1, resolve_limits=0))
    assert least_margin(plan) >= -SHOWN
    assert plan.status == "optimal"


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
def test_the_bound_stands_beside_what_it_bounds() -> None:
    """A job that goes on elsewhere counts a threshold that nobody pays; the market of several is a mix."""
    plan = make_plan(request_of(FIELD / "31-confidence-split-offers-2"))
    text = plan_text.table(plan)
    assert f"counted  {'$' + format(plan.objective_usd.dollars(), ',.2f'):>13}   with min_saving" in text
    assert "proven bound of what is counted" in text
    assert plan.bound_usd <= plan.objective_usd
    several = {j.job for j in plan.jobs if len({x.market for x in plan.lines if x.job == j.job}) > 1}
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith("j")}
    assert several
    assert {name for name, row in rows.items() if "mix" in row} == several


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_a_job_placed_again_beside_the_others_keeps_limits_and_costs_no_more(seed: int) -> None:
    answer = answer_of(made_up_request(make_instance(seed), gap=0.0, resolve_limits=0))
    effort = Effort(PulpSolver(), timedelta(minutes=1))
    for job in answer.problem.jobs:
        if job.name not in answer.holdings:
            continue
        again = replan_jobs(answer, answer.problem, (job,), effort)
        assert again is not None
        assert again.spent.dollars() <= answer.spent.dollars() * 1.001 + 1e-6
        assert {name for name in again.runs if again.runs[name] != answer.runs[name]} <= {job.name}
        for (name, _), taken in load_of(again.problem, again.holdings).items():
            limit = again.problem.shared.get(name)
            assert limit is None or taken <= limit.amount + 1e-6


def test_a_job_that_has_no_place_with_more_time_is_not_placed_again() -> None:
    answer = answer_of(made_up_request(make_instance(0), gap=0.0, resolve_limits=0))
    job, effort = answer.problem.job[min(answer.holdings)], Effort(PulpSolver(), timedelta(minutes=1))
    without = replace(answer.problem, jobs=tuple(each for each in answer.problem.jobs if each is not job))
    assert replan_jobs(answer, without, (job,), effort) is None
    nowhere = replace(answer.problem, candidates={**answer.problem.candidates, job.name: ()})
    assert replan_jobs(answer, nowhere, (job,), effort) is None


def test_with_committed_spend_a_job_is_not_placed_again_alone() -> None:
    seed = committed_seeds(1)[0]
    answer = answer_of(made_up_request(make_committed_instance(seed), gap=0.05, resolve_limits=0))
    assert replan_jobs(answer, answer.problem, answer.problem.jobs, Effort(PulpSolver(), timedelta(minutes=1))) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 14, 34])
def test_columns_hold_no_schedule_that_leaves_its_job_unsure(seed: int) -> None:
    """The bound is one over all schedules; a job that only unsure ones would place is named."""
    night = realistic_night(14, seed, NIGHT)
    request = PlanRequest(night.jobs, load_book("embedded"), night.limits, NIGHT, gap=0.05, resolve_limits=0)
    problem = problem_of(replace(request, compact_jobs=0))

    def solve(*, keeps_confidence: bool) -> PlacementSolution:
        effort = Effort(PulpSolver("highs"), timedelta(minutes=10))
        return solve_by_columns(problem, effort, request.gap, lambda _: None, keeps_confidence=keeps_confidence)

    plain, sure = solve(keeps_confidence=False), solve(keeps_confidence=True)
    assert len(unsure_jobs(problem.jobs, plain.runs)) == 1
    assert not plain.unsure_left_out
    assert not unsure_jobs(problem.jobs, sure.runs)
    assert sure.unsure_left_out <= {job.name for job in problem.jobs} - sure.runs.keys()
    assert sum(sure.rank) - sum(plain.rank) <= len(sure.unsure_left_out)
    assert sure.gap <= request.gap or sure.rank != plain.rank
    assert sure.bound_usd <= plain.spent or sure.rank != plain.rank


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 14, 34])
def test_jobs_planned_by_columns_are_as_sure_as_they_ask(seed: int) -> None:
    night = realistic_night(14, seed, NIGHT)
    request = PlanRequest(
        night.jobs, load_book("embedded"), night.limits, NIGHT, gap=0.05, resolve_limits=0, compact_jobs=0
    )
    plan = make_plan(request)
    assert least_margin(plan) >= -SHOWN
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
