"""Stated placements on random instances: nothing permitted is lost, no plan breaks them, none is better."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from router.jobs.spec import Job
from router.planning.find.candidates import candidates_for
from tests.support.eligibility import missing_candidates
from tests.support.instances import Instance, make_instance
from tests.support.solved_instances import judge_both, solve_instance

FEW, MANY = range(2, 80, 24), range(1, 200, 4)


def placed_instance(seed: int) -> Instance:
    """The instance of the seed with placements stated for most jobs, and gangs that may lie in several zones."""
    rng, instance = Random(f"placements of {seed}"), make_instance(seed)

    def stated(job: Job) -> Job:
        words = ("communication", "memory", "compute", "none", None, *(("data",) * 4 if job.data is not None else ()))
        gang = job.gang.model_copy(update={"same_zone": rng.random() < 0.5})
        return job.model_copy(update={"placement": rng.choice(words), "gang": gang})

    return replace(instance, jobs=tuple(map(stated, instance.jobs)))


def wrong_plans(seeds: range) -> dict[int, list[str]]:
    """Describe what is wrong with the plans of both programs, by seed."""
    found: dict[int, list[str]] = {}
    for seed in seeds:
        instance = placed_instance(seed)
        words = [f"lost {name}" for name in missing_candidates(instance)]
        words += judge_both(solve_instance(instance))
        if words:
            found[seed] = words
    return found


def test_few_instances_keep_their_placements_at_the_least_cost() -> None:
    assert wrong_plans(FEW) == {}


@pytest.mark.slow
def test_100_instances_keep_their_placements_at_the_least_cost() -> None:
    assert wrong_plans(MANY) == {}


def test_placements_rule_offers_out_in_many_instances() -> None:
    ruling = 0
    for seed in range(60):
        instance = placed_instance(seed)
        drops = [
            drop.code
            for job in instance.jobs
            for drop in candidates_for(job, instance.book, instance.limits, instance.now, False)[1]
        ]
        ruling += "placement" in drops
    assert ruling >= 8
