"""The plan against every possible plan: 200 random instances, enumerated to the last schedule."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from router.jobs.residency import Residency
from tests.support.brute_force import greedy_in_turn, optimum
from tests.support.committed_instances import committed_seeds, make_committed_instance
from tests.support.eligibility import missing_candidates
from tests.support.instances import Instance, make_capped_instance, make_instance
from tests.support.plan_agreement import SOLVER
from tests.support.running_instances import make_running_instance, make_sharing_instance
from tests.support.solved_instances import Solved, differences, exact_plan, problem_of, solve

INSTANCES = 200
FEW = range(3, INSTANCES, 16)
DEFAULT_GAP = 0.005


def wrong_plans(solved: list[Solved], gap: float) -> dict[int, list[str]]:
    found = {item.instance.seed: differences(item, exact_plan(item.instance, gap=gap), gap) for item in solved}
    return {seed: words for seed, words in found.items() if words}


@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (make_running_instance, range(0, 60, 6)),
        (make_sharing_instance, range(0, 60, 6)),
        pytest.param(make_sharing_instance, range(150), marks=pytest.mark.slow),
    ],
)
def test_running_jobs_and_those_of_teams_below_their_share_are_left_out_last(
    make: Callable[[int], Instance], seeds: range
) -> None:
    assert wrong_plans([solve(seed, make) for seed in seeds], gap=0.0) == {}


@pytest.mark.slow
def test_running_jobs_are_left_out_last_and_keep_their_places_where_they_cannot_resume_in_150_instances() -> None:
    solved = [solve(seed, make_running_instance) for seed in range(150)]
    # Each kind of level is used: some running job and some other job is left out.
    assert all(any(any(item.best.unplaced[kind::2]) for item in solved) for kind in range(2))
    assert wrong_plans(solved, gap=0.0) == {}


@pytest.mark.parametrize("seeds", [range(0, 60, 4), pytest.param(range(150), marks=pytest.mark.slow)])
def test_caps_on_prices_leave_out_what_is_dearer_and_nothing_else(seeds: range) -> None:
    solved = [solve(seed, make_capped_instance) for seed in seeds]
    assert wrong_plans(solved, gap=0.0) == {}
    assert not [missing for item in solved for missing in missing_candidates(item.instance)]
    # Some caps cost money or a job.
    assert any(solve(item.instance.seed).best.better_than(item.best) for item in solved)


COMMITTED_GAP = 0.05  # a job over several offers works on them in its own order, which the program knows in part


def test_committed_spend_is_used_and_no_plan_is_better() -> None:
    assert wrong_plans([solve(seed, make_committed_instance) for seed in range(6)], gap=COMMITTED_GAP) == {}


@pytest.mark.slow
def test_committed_spend_is_used_and_no_plan_is_better_in_100_instances() -> None:
    solved = [solve(seed, make_committed_instance) for seed in committed_seeds(100)]
    plans_made = {item.instance.seed: exact_plan(item.instance, gap=COMMITTED_GAP) for item in solved}
    # Where the search ends short of the gap asked, the plan says so: no plan is better than its own gap admits.
    wrong = {
        item.instance.seed: words
        for item in solved
        for made in (plans_made[item.instance.seed],)
        if (words := differences(item, made, min(max(COMMITTED_GAP, made.gap), 0.999)))
    }
    assert wrong == {}
    assert sum(made.gap > COMMITTED_GAP for made in plans_made.values()) <= len(solved) // 10
    exact = [item for item in solved if item.instance.seed % 4 == 1]
    plans = [exact_plan(item.instance).objective_usd.dollars() for item in exact]
    reached = [usd <= item.best.value * (1 + SOLVER) + 1e-9 for usd, item in zip(plans, exact, strict=True)]
    assert sum(reached) >= 0.8 * len(reached)


def without_last_job(seed: int) -> Instance:
    """Two jobs, and offers of a region and of its zone that differ in nothing."""
    instance = make_committed_instance(seed)
    return replace(instance, jobs=instance.jobs[:-1])


def first_job_off_azure(seed: int) -> Instance:
    instance = make_committed_instance(seed)
    first, *others = instance.jobs
    kept_off = first.model_copy(update={"residency": Residency.model_validate({"deny": ["azure"]})})
    return replace(instance, jobs=(kept_off, *others))


@pytest.mark.parametrize(("seed", "changed"), [(47, without_last_job), (62, first_job_off_azure)])
def test_two_equal_offers_may_be_better_than_one_where_spend_is_committed(
    seed: int, changed: Callable[[int], Instance]
) -> None:
    """Without the second one plans that called themselves optimal cost 2.7 and 10.8 % more than the best."""
    solved = solve(seed, changed)
    assert any(len({held for held in choice or () if held >= 0}) > 1 for _, choice in solved.best.choice)
    assert differences(solved, exact_plan(solved.instance), 0.0) == []


def dated(seed: int) -> bool:
    """Whether a reservation of the instance begins or ends."""
    return any(item.start or item.until for item in make_instance(seed).limits.reservations)


@pytest.mark.slow
def test_reservations_are_used_within_their_dates_and_no_plan_is_better() -> None:
    seeds = [seed for seed in range(INSTANCES) if dated(seed)][:12]
    assert len(seeds) == 12
    assert wrong_plans([solve(seed) for seed in seeds], gap=0.0) == {}


@pytest.fixture(scope="module")
def solved() -> list[Solved]:
    return [solve(seed) for seed in range(INSTANCES)]


@pytest.mark.slow
def test_the_instances_are_worth_solving(solved: list[Solved], capsys: pytest.CaptureFixture[str]) -> None:
    """A shared limit binds in half of them, and cheapest-per-job in turn is beaten in 30 or more."""
    binding = sum(item.limit_binds for item in solved)
    beaten = sum(item.best.better_than(item.greedy) for item in solved)
    dearer = sum(item.best.better_than(item.greedy) and item.best.unplaced == item.greedy.unplaced for item in solved)
    left = sum(any(item.best.unplaced) for item in solved)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(solved)} instances: a shared limit binds in {binding}, cheapest-per-job in turn is strictly "
            f"worse in {beaten} (in {dearer} of them dearer, else fewer jobs), some job is left out in {left}\n"
        )
    assert binding >= INSTANCES // 2
    assert beaten >= 30


@pytest.mark.slow
def test_nothing_that_fits_is_sieved_out(solved: list[Solved]) -> None:
    """Each offer that a job's own words permit is among its candidates."""
    missing = {item.instance.seed: missing_candidates(item.instance) for item in solved}
    assert {seed: names for seed, names in missing.items() if names} == {}


@pytest.mark.always
@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, DEFAULT_GAP])
def test_plans_equal_the_optimum_within_the_gap(solved: list[Solved], gap: float) -> None:
    """Unplaced jobs and cost are the optimum's, the bound never exceeds it, and no promise is broken."""
    assert wrong_plans(solved, gap) == {}


@pytest.mark.parametrize("gap", [0.0, DEFAULT_GAP])
def test_some_plans_equal_the_optimum_within_the_gap(gap: float) -> None:
    """The same on a few of them, for every day."""
    assert wrong_plans([solve(seed) for seed in FEW], gap) == {}


@pytest.mark.parametrize("seed", range(300, 308))
def test_jobs_that_must_start_at_once_do_where_any_plan_could(seed: int) -> None:
    """Every other job of the instance has no deadline and ``max_wait: 0s``."""
    instance = make_instance(seed)
    changes: dict[str, object] = {"deadline": None, "max_wait": timedelta(0)}
    jobs = tuple(job.model_copy(update=changes) if n % 2 == 0 else job for n, job in enumerate(instance.jobs))
    instance = replace(instance, jobs=jobs)
    problem = problem_of(instance)
    solved = Solved(instance, optimum(problem), greedy_in_turn(problem), limit_binds=False, levels=problem.levels)
    assert differences(solved, exact_plan(instance), 0.0) == []
