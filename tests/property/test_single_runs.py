"""Single runs beside the loads of other jobs: what the search passes over could not have been better."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.shared_limits import Load
from router.planning.problem.problem import PlacementProblem, slots_within_dates
from router.planning.problem.schedule import SlotHold
from router.planning.program.left_shift import earliest_run, may_begin, run_from
from router.planning.program.single_runs import JobContext, best_single_run, evaluate_single_run, fitting_runs
from tests.support.instances import make_instance
from tests.support.running_instances import make_running_instance
from tests.support.scenes import problem_of
from tests.support.solved_instances import request_of

SEEDS = range(0, 60, 3)


def first_run(problem: PlacementProblem, job: Job, candidate: Candidate, load: Load) -> tuple[SlotHold, ...] | None:
    """Return the first run from any slot, each of which is tried."""
    window = slots_within_dates(candidate, problem.window(job))
    for first, slot in enumerate(window):
        if not may_begin(problem, job, candidate, slot):
            return None
        run = run_from(problem, job, candidate, load, window[first:])
        if run is not None:
            return run
    return None


def contexts(seed: int) -> Iterator[JobContext]:
    """Yield each job of an instance beside a random load."""
    instance = make_running_instance(seed) if seed % 2 else make_instance(seed)
    problem, rng = problem_of(request_of(instance)), Random(seed)
    for job in problem.jobs:
        load = {
            (name, slot.index): limit.amount * rng.choice((0.0, 0.5, 1.0))
            for name, limit in problem.shared.items()
            for slot in problem.slots
            if rng.random() < 0.4
        }
        yield JobContext(problem, job, load)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_earliest_run_is_the_first_of_all_slots(seed: int) -> None:
    for here in contexts(seed):
        for candidate in here.problem.all_candidates[here.job.name]:
            found = earliest_run(here.problem, here.job, candidate, here.load)
            assert found == first_run(here.problem, here.job, candidate, here.load)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_run_is_the_best_of_all_that_fit(seed: int) -> None:
    for here in contexts(seed):
        candidates = here.problem.all_candidates[here.job.name]
        runs = fitting_runs(here, candidates)
        best = min(runs, key=lambda run: (run.objective_usd, run.candidate.key), default=None)
        assert best_single_run(here, candidates) == best
        if best is not None:
            assert best_single_run(here, candidates, below=best.cost) is None
            assert best_single_run(here, candidates, below=best.cost + Usd(1)) == best


@pytest.mark.parametrize("seed", SEEDS)
def test_no_run_costs_less_than_its_steps(seed: int) -> None:
    for here in contexts(seed):
        for candidate in here.problem.all_candidates[here.job.name]:
            run = evaluate_single_run(here, candidate)
            steps = steps_to_do(here.job, running=candidate.running)
            assert run.cost.dollars() >= candidate.usd_per_step * steps * (1 - 1e-6)
