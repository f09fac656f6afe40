"""Quantities stated in job files on random instances: no plan is better, and its terms are what they make."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from router.jobs.spec import Interruptions, Job
from tests.support.instances import Instance, make_instance
from tests.support.solved_instances import judge_both, solve_instance

FEW, MANY = range(3, 60, 19), range(1, 200, 5)


def stated_instance(seed: int) -> Instance:
    """The instance of the seed whose jobs state interruptions, idle time and stalls, most of them some."""
    rng, instance = Random(f"stated costs of {seed}"), make_instance(seed)

    def minutes(most: int) -> timedelta | None:
        return timedelta(minutes=rng.randint(0, most)) if rng.random() < 0.6 else None

    def stated(job: Job) -> Job:
        saved = job.checkpoint
        own: dict[str, Any] = {}
        if job.market.spot != "never" and rng.random() < 0.7:
            own["per_hour"] = rng.choice((0.001, 0.05, 0.4))
        if saved is not None:
            own["lost_work"] = minutes(20)
            if saved.asynchronous:
                saved = saved.model_copy(update={"stall": minutes(2)})
        own["restart"] = minutes(30)
        known = Interruptions(**own) if any(value is not None for value in own.values()) else None
        return job.model_copy(update={"checkpoint": saved, "interruptions": known, "idle": minutes(6)})

    return replace(instance, jobs=tuple(map(stated, instance.jobs)))


def wrong_plans(seeds: range) -> dict[int, list[str]]:
    """Describe what is wrong with the plans of both programs, by seed."""
    found: dict[int, list[str]] = {}
    for seed in seeds:
        if words := judge_both(solve_instance(stated_instance(seed)), explained=True):
            found[seed] = words
    return found


def test_few_instances_with_stated_costs_are_planned_at_the_least_cost() -> None:
    assert wrong_plans(FEW) == {}


@pytest.mark.slow
def test_40_instances_with_stated_costs_are_planned_at_the_least_cost() -> None:
    assert wrong_plans(MANY) == {}
