"""A shortlist in place of the whole program: its bound never lies above what the whole program finds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from router.planning import planner
from router.planning.planner import PlanRequest, make_plan
from router.planning.problem.problem import PlacementProblem
from router.planning.program.column_generation import MAX_FULL_SHARES, build_shortlist, count_slot_shares
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.solve import solve_in_stages
from router.planning.program.solver import PulpSolver
from tests.support.instances import make_instance
from tests.support.made_up_book import offer
from tests.support.scenes import (
    ALPS,
    LAKE,
    NORTH,
    NORTH_SPOT,
    RUNNING_IN_NORTH,
    SOUTH,
    a_job,
    a_request,
    places,
    problem_of,
)

SEEDS = range(4100, 4120)
RHINE = offer("gcp/rhine-1", "a9-highgpu-8g", "on_demand", "44")
FEW = {"limits": [{"name": "few", "cloud": "gcp", "amount": 8, "unit": "accelerators"}]}


def instance(seed: int) -> PlanRequest:
    i = make_instance(seed)
    return a_request(i.jobs, i.book.offers, i.limits, now=i.now, horizon=i.horizon, slot=i.slot, resolve_limits=0)


def crowd() -> PlanRequest:
    """Six jobs that all want the cheapest place, which takes one at a time."""
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 100}
    jobs = [
        a_job(f"j{n}", steps=150 + 40 * n, deadline=f"+{5 + n % 3}h", data=data if n % 2 else None) for n in range(6)
    ]
    return a_request(jobs, [NORTH, SOUTH, ALPS, LAKE, RHINE], FEW, resolve_limits=0)


def effort() -> Effort:
    return Effort(PulpSolver(), timedelta(seconds=30))


def optimum(problem: PlacementProblem) -> tuple[int, float]:
    """Jobs left out, and the least cost with thresholds."""
    answer = solve_in_stages(problem, formulate(problem), effort(), 0.0)
    return len(problem.jobs) - len(answer.runs), answer.spent.dollars()


def test_the_bound_is_below_the_optimum_of_the_whole_program() -> None:
    tight = 0
    for seed in SEEDS:
        problem = problem_of(instance(seed))
        if not problem.jobs:
            continue
        left_out, least = optimum(problem)
        found = build_shortlist(problem, effort(), 0.005)
        bound = found.bound(left_out)
        assert bound <= least * (1 + 1e-9) + 1e-6, seed
        tight += bound > 0.9 * least
    assert tight > 5


def test_it_prices_a_crowd_within_a_few_percent() -> None:
    problem = problem_of(crowd())
    left_out, least = optimum(problem)
    found = build_shortlist(problem, effort(), 0.005)
    assert left_out == 0
    assert 0.9 * least < found.bound(0) <= least * (1 + 1e-9)
    assert {
        job: len(c) <= len(problem.candidates[job]) for job, c in found.problem.candidates.items()
    } == dict.fromkeys(problem.candidates, True)


def test_leaving_a_job_out_takes_the_dearest_floor_from_the_bound() -> None:
    problem = problem_of(crowd())
    found = build_shortlist(problem, effort(), 0.005)
    assert found.bound(1) == pytest.approx(found.bound(0) - max(found.floors.values()))
    assert found.bound(6) == pytest.approx(-found.shared)


def test_where_a_job_runs_now_is_always_on_the_shortlist() -> None:
    job = a_job(status={"steps_done": 10, "running": RUNNING_IN_NORTH})
    problem = problem_of(a_request([job], [NORTH, SOUTH, ALPS, LAKE, RHINE]))
    found = build_shortlist(problem, effort(), 0.005)
    assert [c.key for c in found.problem.candidates["a"] if c.running] == ["aws/north-1/p9.48xlarge/on_demandx8"]


def test_size_counts_shares_of_slots() -> None:
    problem = problem_of(a_request([a_job(deadline="+8h")], [NORTH, NORTH_SPOT]))
    assert count_slot_shares(problem) == 2 * len(problem.slots)
    assert count_slot_shares(replace(problem, candidates={"a": ()})) == 0
    assert count_slot_shares(problem) < MAX_FULL_SHARES


@pytest.mark.slow
def test_a_plan_over_a_shortlist_never_claims_more_than_the_whole_program(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {seed: make_plan(instance(seed)) for seed in SEEDS[:8]}
    monkeypatch.setattr(planner, "MAX_FULL_SHARES", 0)
    for seed, whole in exact.items():
        plan = make_plan(replace(instance(seed), gap=0.005))
        if len(plan.unplaced) == len(whole.unplaced):
            best = (whole.cost_usd + whole.threshold_usd).nanos
            assert plan.bound_usd.nanos <= best * (1 + 1e-9) + 1000, seed
            assert (plan.cost_usd + plan.threshold_usd).nanos >= best * (1 - 1e-6) - 1000, seed
            if plan.status == "optimal":
                assert plan.gap <= 0.005 + 1e-9, seed
        else:
            assert len(plan.unplaced) > len(whole.unplaced), seed
            assert plan.status != "optimal", seed
            assert not plan.stage_one_proven, seed


def test_a_crowd_is_planned_alike_over_a_shortlist(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_plan(replace(crowd(), gap=0.001))
    monkeypatch.setattr(planner, "MAX_FULL_SHARES", 0)
    plan = make_plan(replace(crowd(), gap=0.005))
    assert (plan.status, plan.unplaced) == ("optimal", ())
    assert plan.cost_usd.dollars() == pytest.approx(whole.cost_usd.dollars(), rel=0.006)
    assert sum("gcp" in place for place in places(plan).values()) >= 2


def test_the_same_bytes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_FULL_SHARES", 0)
    request = replace(crowd(), time_limit=timedelta(seconds=60))
    assert make_plan(request) == make_plan(request)
