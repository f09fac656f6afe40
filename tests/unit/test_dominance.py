"""Leaving candidates out changes no optimum, and what the program still needs is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from pricing.offers import Offer
from router.planning.problem.dominance import drop_dominated
from router.planning.problem.problem import PlacementProblem
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.solve import PlacementSolution, solve_in_stages
from router.planning.program.solver import PulpSolver
from tests.support.instances import make_instance
from tests.support.scenes import ALPS, LAKE, NORTH, NORTH_SPOT, RUNNING_IN_NORTH, SOUTH, a_job, a_request, problem_of

SEEDS = range(7000, 7020)
HERE = "aws/north-1 on_demand"


def solved(problem: PlacementProblem) -> PlacementSolution:
    return solve_in_stages(problem, formulate(problem), Effort(PulpSolver(), timedelta(seconds=30)), 0.0)


def with_everything(problem: PlacementProblem) -> PlacementProblem:
    return replace(problem, candidates={job.name: problem.all_candidates[job.name] for job in problem.jobs})


def with_a_twin(offers: Sequence[Offer]) -> list[Offer]:
    """Beside the first offer another in a zone of its own, a tenth dearer."""
    first = offers[0]
    dearer = first.usd_per_hour.scaled(Fraction(11, 10))
    return [*offers, replace(first, zone=f"{first.zone or first.region}z", usd_per_hour=dearer)]


def test_dropping_changes_neither_who_is_placed_nor_the_cost() -> None:
    dropped = 0
    for seed in SEEDS:
        i = make_instance(seed)
        problem = problem_of(
            a_request(i.jobs, with_a_twin(i.book.offers), i.limits, now=i.now, horizon=i.horizon, slot=i.slot)
        )
        whole = with_everything(problem)
        fewer = sum(len(whole.candidates[job.name]) - len(problem.candidates[job.name]) for job in problem.jobs)
        dropped += fewer
        if not fewer:
            continue
        pruned, full = solved(problem), solved(whole)
        assert (seed, _left_out(pruned)) == (seed, _left_out(full))
        assert pruned.spent.dollars() == pytest.approx(full.spent.dollars(), rel=1e-6, abs=1e-5), seed
    assert dropped > 10


def _left_out(answer: PlacementSolution) -> dict[int, int]:
    tiers = {job.priority for job in answer.problem.jobs}
    return {t: sum(j.priority == t and j.name not in answer.runs for j in answer.problem.jobs) for t in tiers}


def kept(job: Any, *offers: Any, limits: Any = None) -> list[str]:
    problem = problem_of(a_request([job], offers, limits))
    return [f"{c.region} {c.market.value}" for c in problem.candidates[job.name]]


def test_a_dearer_zone_of_the_same_region_is_dropped() -> None:
    zones = [replace(NORTH, zone=zone) for zone in ("north-1a", "north-1b")]
    problem = problem_of(a_request([a_job()], [zones[0], zones[1], NORTH_SPOT]))
    assert [c.key for c in problem.candidates["a"]] == [
        "aws/north-1/north-1a/p9.48xlarge/on_demandx8",
        "aws/north-1/p9.48xlarge/spotx8",
    ]
    assert len(problem.all_candidates["a"]) == 3


def test_slower_but_cheaper_is_kept() -> None:
    assert kept(a_job(), NORTH, NORTH_SPOT) == [HERE, "aws/north-1 spot"]


def test_what_takes_less_of_a_limit_that_binds_is_kept() -> None:
    jobs = [a_job("a"), a_job("b")]
    limits = {"limits": [{"name": "p9", "market": "on_demand", "amount": 8, "unit": "accelerators"}]}
    dear_spot = replace(NORTH_SPOT, usd_per_hour=NORTH.usd_per_hour, interruptions_per_hour=0.0)
    free = problem_of(a_request(jobs, [NORTH, dear_spot]))
    bound = problem_of(a_request(jobs, [NORTH, dear_spot], limits))
    assert bound.binding == frozenset({"p9"})
    assert [len(s.candidates["a"]) for s in (free, bound)] == [1, 2]


def test_where_the_job_runs_now_is_never_dropped() -> None:
    job = a_job(status={"steps_done": 10, "running": RUNNING_IN_NORTH})
    assert kept(job, NORTH, replace(NORTH, zone="north-1a"), ALPS) == ["aws/alps-1 on_demand", HERE]


def test_a_whole_region_is_dropped_where_moving_to_a_better_one_is_free() -> None:
    assert kept(a_job(), NORTH, SOUTH, ALPS, LAKE) == ["gcp/lake-1 on_demand"]
    assert sorted(kept(a_job(regions=2), NORTH, SOUTH)) == [HERE, "aws/south-1 on_demand"]


def test_a_region_near_the_data_is_kept() -> None:
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 100}
    assert sorted(kept(a_job(data=data), NORTH, SOUTH)) == [HERE, "aws/south-1 on_demand"]


def test_one_candidate_is_always_kept_and_order_does_not_matter() -> None:
    problem = problem_of(a_request([a_job()], [NORTH, SOUTH]))
    found = problem.all_candidates["a"]
    assert drop_dominated(problem.jobs[0], found[:1], problem.use, problem.binding) == found[:1]
    forward = drop_dominated(problem.jobs[0], found, problem.use, problem.binding)
    assert drop_dominated(problem.jobs[0], found[::-1], problem.use, problem.binding) == forward
