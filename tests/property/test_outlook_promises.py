"""Plans that reach beyond their horizon keep every promise too: outlook lines, longest waits, shares of slots."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from router.jobs.quantities import Moment
from router.jobs.spec import Job
from router.planning.planner import make_plan
from tests.support.checker import check_plan
from tests.support.instances import Instance, make_instance
from tests.support.solved_instances import request_of

FEW = range(1000, 1006)
MANY = range(1006, 1060)


def longer(seed: int) -> Instance:
    """A random instance with ten times the work, and days instead of hours: deadlines far off, or none."""
    rng = Random(seed)
    instance = make_instance(seed)
    return replace(instance, jobs=tuple(_longer(rng, job, instance) for job in instance.jobs))


def _longer(rng: Random, job: Job, instance: Instance) -> Job:
    assert job.deadline is not None
    changes: dict[str, Any] = {"steps": job.steps * 10}
    if rng.random() < 0.5:
        last = instance.now + timedelta(hours=rng.choice((20, 47, 90, 200)))
        changes["deadline"] = Moment(absolute=last)
    else:
        changes |= {"deadline": None, "max_wait": timedelta(hours=rng.choice((1, 10, 60)))}
    if job.budget is not None:
        changes["budget"] = type(job.budget)(job.budget.nanos * 10)
    return job.model_copy(update=changes)


def broken_promises(seed: int, gap: float) -> list[str]:
    """What the checker finds, and whether anything lies beyond the horizon."""
    instance = longer(seed)
    plan = make_plan(request_of(instance, gap=gap, resolve_limits=0, explained=False))
    found = check_plan(plan, instance.jobs, instance.book, instance.limits, slot=instance.slot)
    return [f"seed {seed}: {words}" for words in found]


def test_outlooks_keep_their_promises() -> None:
    assert [words for seed in FEW for words in broken_promises(seed, 0.005)] == []


@pytest.mark.slow
def test_many_outlooks_keep_their_promises() -> None:
    """The same on more of them."""
    assert [words for seed in MANY for words in broken_promises(seed, 0.005)] == []
