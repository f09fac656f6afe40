"""The last stage: as early as the cost found allows, by weight, in one piece; held against every other schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from random import Random
from typing import Any

import pytest

from pricing.money import Usd
from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.document.plan import Cut
from router.planning.improve.early_starts import start_early
from router.planning.planner import make_plan
from router.planning.problem.schedule import Holdings, SlotHold, runs_of
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.left_shift import earliest_run, run_from
from router.planning.program.solve import PlacementSolution, threshold_of
from router.planning.program.solver import PulpSolver
from router.planning.rules.load import load_without
from tests.support.instances import make_instance
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, RUNNING_IN_NORTH, SOUTH, a_job, a_request, answer_of, problem_of
from tests.support.solved_instances import request_of

ONE = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=1)


def effort(seconds: float = 600) -> Effort:
    return Effort(PulpSolver(), timedelta(seconds=seconds))


def held(
    jobs: Sequence[Job], offers: Sequence[Offer], slots: dict[str, Sequence[int]], limits: Any = None
) -> PlacementSolution:
    """An answer that gives each job these slots on its first candidate by name."""
    problem = problem_of(a_request(jobs, offers, limits))
    holdings = {
        job.name: tuple(SlotHold(problem.slots[i], problem.candidates[job.name][0].key, 1.0) for i in slots[job.name])
        for job in problem.jobs
    }
    return answer_with(problem_of(a_request(jobs, offers, limits)), holdings)


def answer_with(problem: Any, holdings: Holdings) -> PlacementSolution:
    runs = {name: runs_of(problem, problem.job[name], holds) for name, holds in holdings.items()}
    return PlacementSolution(
        problem, formulate(problem).program, runs, holdings, Usd(0), threshold_of(problem, runs), True, False
    )


def slots_of(answer: PlacementSolution) -> dict[str, list[int]]:
    return {name: [hold.slot.index for hold in holds] for name, holds in answer.holdings.items()}


def test_two_jobs_change_places_where_one_alone_could_not_move() -> None:
    """The short job waits behind the long one at the only machine: together they can start earlier by three hours."""
    jobs = [a_job("long", steps=400, deadline="+8h"), a_job("short", steps=100, deadline="+8h")]
    before = held(jobs, [ONE], {"long": range(5), "short": (5, 6)})
    after = start_early(before, effort())
    assert slots_of(after) == {"short": [0, 1], "long": [2, 3, 4, 5, 6]}
    assert after.spent == before.spent


def test_priority_outweighs_length() -> None:
    jobs = [a_job("long", steps=300, deadline="+8h", priority=3), a_job("short", steps=200, deadline="+8h")]
    before = held(jobs, [ONE], {"short": range(3), "long": range(3, 7)})
    assert slots_of(start_early(before, effort())) == {"long": [0, 1, 2, 3], "short": [4, 5, 6]}


def test_ties_go_by_name_wherever_the_search_had_put_them() -> None:
    jobs = [a_job(name, steps=150, deadline="+8h") for name in "abc"]
    for order in ("abc", "bca", "cba"):
        before = held(jobs, [ONE], {name: (2 * n + 1, 2 * n + 2) for n, name in enumerate(order)})
        assert slots_of(start_early(before, effort())) == {"a": [0, 1], "b": [2, 3], "c": [4, 5]}


def test_fragments_are_joined_where_that_costs_nothing() -> None:
    job = a_job("a", steps=390, deadline="+8h", startup_minutes=0)
    before = held([job], [NORTH], {"a": (0, 1, 5, 6)})
    after = start_early(before, effort())
    assert slots_of(after) == {"a": [0, 1, 2, 3]}
    assert after.spent - after.threshold == before.spent - before.threshold


def test_a_job_that_can_only_run_in_pieces_keeps_them() -> None:
    jobs = [
        a_job("a", steps=190, deadline="+3h", startup_minutes=0),
        a_job("b", steps=90, deadline="+2h", earliest_start="+1h", startup_minutes=0),
    ]
    before = held(jobs, [ONE], {"a": (0, 2), "b": (1,)})
    assert slots_of(start_early(before, effort())) == {"a": [0, 2], "b": [1]}


def test_a_job_that_runs_stays() -> None:
    answer = answer_of(
        a_request([a_job("a", status={"steps_done": 10, "running": RUNNING_IN_NORTH})], [NORTH, SOUTH], gap=0.5)
    )
    assert start_early(answer, effort()) is answer


def test_nothing_to_gain_and_no_time_are_the_same_answer() -> None:
    late = effort(0)
    before = held([a_job("a"), a_job("b")], [NORTH], {"a": range(4), "b": range(4, 8)})
    assert start_early(before, late) is before
    assert late.cuts == (Cut("early starts", "time"),)


def weighted(answer: PlacementSolution, holdings: Holdings) -> float:
    """Hours of start, weighted by the rank of the priority; jobs are in one piece here."""
    tiers = sorted({job.priority for job in answer.problem.jobs})
    return sum(
        (1 + tiers.index(answer.problem.job[name].priority)) * holds[0].slot.index for name, holds in holdings.items()
    )


def all_schedules(answer: PlacementSolution) -> Iterator[dict[str, tuple[SlotHold, ...]]]:
    """Every way to run each job in one piece on its candidate within limits."""
    problem = answer.problem
    choices = []
    for job in problem.jobs:
        candidate = problem.candidate(job.name, answer.holdings[job.name][0].key)
        window = problem.window(job)
        found = [run_from(problem, job, candidate, {}, window[i:]) for i in range(len(window))]
        choices.append([run for run in found if run is not None])
    for chosen in product(*choices):
        held_then = dict(zip([job.name for job in problem.jobs], chosen, strict=True))
        fits = all(
            run_from(
                problem,
                job,
                problem.candidate(job.name, run[0].key),
                load_without(problem, held_then, job.name),
                problem.slots[run[0].slot.index :],
            )
            == run
            for job, run in zip(problem.jobs, chosen, strict=True)
        )
        if fits:
            yield held_then


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_of_the_same_places_has_less_weighted_delay(seed: int) -> None:
    rng = Random(seed)
    jobs = [
        a_job(name, steps=rng.choice((70, 150, 250)), deadline=f"+{rng.choice((8, 8, 6))}h", priority=rng.randrange(3))
        for name in "abc"
    ]
    offers = [offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=rng.choice((1, 2)))]
    answer = answer_of(a_request(jobs, offers))
    if len(answer.runs) < len(jobs):
        pytest.skip("not all of them fit")
    least = min(weighted(answer, found) for found in all_schedules(answer))
    assert weighted(answer, start_early(answer, effort()).holdings) == pytest.approx(least)


@pytest.mark.parametrize("seed", range(40, 52))
def test_in_a_plan_no_job_alone_could_start_earlier_at_its_place(seed: int) -> None:
    request = request_of(make_instance(seed), gap=0.05, resolve_limits=0)
    answer = answer_of(request)
    problem = answer.problem
    for job in problem.jobs:
        holds = answer.holdings.get(job.name, ())
        if len({h.key for h in holds}) != 1 or answer.runs[job.name][0].candidate.transfers:
            continue
        candidate = problem.candidate(job.name, holds[0].key)
        alone = earliest_run(problem, job, candidate, load_without(problem, answer.holdings, job.name))
        if alone is not None and not candidate.running:
            assert alone[0].slot.index >= holds[0].slot.index, job.name


def test_moves_stay_in_their_month() -> None:
    """On the last evening of a month a job that was placed in the next one, whose free allowance is whole, stays."""
    data = {"uri": "s3://a/b", "at": "aws/alps-1", "gib": 90}
    job = a_job("a", deadline="+12h", data=data)
    now = a_request([job], [NORTH]).now + timedelta(days=9, hours=2)  # 30 November, 20:00
    problem = problem_of(a_request([job], [NORTH], now=now, horizon=timedelta(hours=12)))
    candidate = problem.candidates["a"][0]
    late = earliest_run(problem, job, candidate, {}, problem.window(job)[6:])
    assert late is not None
    after = start_early(answer_with(problem, {"a": late}), effort())
    assert after.holdings["a"][0].slot.month == "2026-12"
    assert after.holdings["a"][0].slot.index == 4


def test_a_plan_starts_everybody_at_once_where_there_is_room() -> None:
    jobs = [a_job(name, deadline="+7d") for name in "abc"]
    plan = make_plan(replace(a_request(jobs, [NORTH, SOUTH]), gap=0.2, resolve_limits=0))
    assert {job.start for job in plan.jobs} == {plan.as_of}


def test_of_places_that_cost_the_same_the_first_by_name_is_taken() -> None:
    """Two zones at one price, one machine each: two jobs run side by side, wherever the search had put them."""
    zones = [offer("aws/north-1", "p9.48xlarge", "on_demand", "60", zone=f"north-1{zone}", cap=1) for zone in "ab"]
    problem = problem_of(a_request([a_job("x", deadline="+8h"), a_job("y", deadline="+8h")], zones))
    keys = [c.key for c in problem.candidates["x"]]
    assert len(keys) == 2
    last = problem.candidate("x", keys[1])
    first = earliest_run(problem, problem.job["x"], last, {})
    second = earliest_run(problem, problem.job["y"], last, {}, problem.window(problem.job["y"])[4:])
    assert first is not None
    assert second is not None
    after = start_early(answer_with(problem, {"x": first, "y": second}), effort())
    assert {name: (holds[0].slot.index, holds[0].key) for name, holds in after.holdings.items()} == {
        "x": (0, keys[0]),
        "y": (0, keys[1]),
    }
