"""Repairs after the search: never dearer, never over a budget or a limit, and what runs stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pricing.money import Usd
from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.problem.schedule import SlotHold, runs_of
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.left_shift import compact_holdings, earliest_run
from router.planning.program.local_search import improve_places
from router.planning.program.solve import PlacementSolution, threshold_of
from router.planning.program.solver import PulpSolver
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, RUNNING_IN_NORTH, SOUTH, a_job, a_request, problem_of

HERE = "aws/north-1/p9.48xlarge/on_demandx8"
THERE = "aws/south-1/p9.48xlarge/on_demandx8"


def placed(
    jobs: list[Job], keys: dict[str, str], *offers: Offer, limits: Any = None, late: int = 0
) -> PlacementSolution:
    """An answer that puts each job on the candidate named, so many slots later than it could."""
    problem = problem_of(a_request(jobs, offers, limits))
    holdings: dict[str, tuple[SlotHold, ...]] = {}
    for job in problem.jobs:
        found = earliest_run(problem, job, problem.candidate(job.name, keys[job.name]), {}, problem.window(job)[late:])
        assert found is not None
        holdings[job.name] = found
    runs = {name: runs_of(problem, problem.job[name], holds) for name, holds in holdings.items()}
    return PlacementSolution(
        problem, formulate(problem).program, runs, holdings, Usd(0), threshold_of(problem, runs), True, False
    )


def repaired(before: PlacementSolution) -> PlacementSolution:
    return improve_places(before, Effort(PulpSolver(), timedelta(minutes=1)))


def where(answer: PlacementSolution) -> dict[str, set[str]]:
    return {name: {run.candidate.key for run in runs} for name, runs in answer.runs.items()}


def test_a_job_goes_where_it_is_cheaper() -> None:
    before = placed([a_job("a"), a_job("b")], {"a": HERE, "b": THERE}, NORTH, SOUTH)
    after = repaired(before)
    assert where(after) == {"a": {THERE}, "b": {THERE}}
    assert after.spent < before.spent
    assert after.bound_usd == before.bound_usd


def test_nothing_to_repair_is_the_same_answer() -> None:
    before = placed([a_job("a")], {"a": THERE}, NORTH, SOUTH)
    assert repaired(before) is before


def test_a_job_that_runs_stays() -> None:
    before = placed([a_job("a", status={"steps_done": 10, "running": RUNNING_IN_NORTH})], {"a": HERE}, NORTH, SOUTH)
    assert repaired(before) is before


def test_limits_hold_as_before() -> None:
    one = offer("aws/south-1", "p9.48xlarge", "on_demand", "50", cap=1)
    jobs = [a_job(name, deadline="+4h") for name in "ab"]
    before = placed(jobs, {"a": HERE, "b": THERE}, NORTH, one)
    assert repaired(before) is before


def test_the_move_counts_and_may_make_the_cheaper_place_the_dearer_one() -> None:
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 5000}
    before = placed([a_job("a", data=data)], {"a": HERE}, NORTH, SOUTH)
    assert repaired(before) is before


def test_a_budget_counts_moves_at_their_dearest() -> None:
    """$185.60 and nothing to move within the free allowance; $8.70 more at the dearest tier: nobody else decides it."""
    lake = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "58")
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 90}
    for budget, moves in (("$195", True), ("$190", False)):
        before = placed([a_job("a", data=data, budget=budget)], {"a": HERE}, NORTH, lake)
        assert (where(repaired(before)) == {"a": {"gcp/lake-1/a9-highgpu-8g/on_demandx8"}}) is moves


def test_a_teams_budget_counts_moves_at_their_dearest_too() -> None:
    """Two jobs of a team, $384.50 where they are. At the lake the first really costs $6.41 less, and counts for $2.29
    more: a budget that the team would break by that keeps it where it is."""
    lake = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "58")
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 90}
    for budget, moves in (("$400", True), ("$385.50", False)):
        limits = {"teams": [{"team": "red", "budget": budget}]}
        jobs = [a_job("a", data=data), a_job("b")]
        before = placed(jobs, {"a": HERE, "b": HERE}, NORTH, lake, limits=limits)
        after = repaired(before)
        assert ("gcp/lake-1/a9-highgpu-8g/on_demandx8" in where(after)["a"]) is moves, budget


def test_the_same_place_sooner_costs_the_same() -> None:
    before = placed([a_job("a")], {"a": HERE}, NORTH, late=3)
    sooner = compact_holdings(before.problem, before.holdings)
    assert sooner["a"][0].slot.index == 0
    assert before.holdings["a"][0].slot.index == 3
    assert [h.key for h in sooner["a"]] == [h.key for h in before.holdings["a"]]


def test_sooner_keeps_what_others_hold_and_goes_by_priority() -> None:
    one = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=1)
    jobs = [a_job("a", steps=150, max_wait="1d"), a_job("b", steps=150, priority=5, max_wait="1d")]
    before = placed(jobs, {"a": HERE, "b": HERE}, one, late=6)
    apart = {"a": before.holdings["a"], "b": placed(jobs, {"a": HERE, "b": HERE}, one, late=3).holdings["b"]}
    sooner = compact_holdings(before.problem, apart)
    assert [h.slot.index for h in sooner["b"]] == [0, 1]
    assert [h.slot.index for h in sooner["a"]] == [2, 3]
