"""Types derived from the estimated step on random instances: what is left out is forbidden, and no plan is better."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from router.jobs.spec import Job
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan, placement_type_of
from tests.support.instances import Instance, make_instance
from tests.support.placement_oracle import unplaceable
from tests.support.solved_instances import judge_both, solve_instance

FEW, MANY = range(1, 70, 23), range(1, 200, 5)
# Parameters and tokens of a step: short steps that exchange much, and ones that nearly fill the memory of a machine.
SHAPES = (("7B", 4096), ("3B", 2048), ("36B", 65536), ("36B", 32768))


def shaped_instance(seed: int) -> Instance:
    """The instance of the seed whose jobs have a shape instead of points, and gangs that may lie in several zones."""
    rng, instance = Random(f"derived placements of {seed}"), make_instance(seed)

    def shaped(job: Job) -> Job:
        parameters, tokens = rng.choice(SHAPES)
        shape = {"parameters": parameters, "layers": 32, "hidden": 4096, "sequence_length": 2048}
        work = {"transformer": shape | {"tokens_per_step": tokens, "recompute": "selective"}}
        content = job.model_dump(mode="json")
        kind = job.gang.options[0].accelerator
        sizes = [8, 16] if tokens > 4096 else [32] if kind != "H100" else [8]
        content["steps"] = rng.randint(500, 1500) * 65536 // tokens
        if job.data is not None:
            content["data"]["gib"] = content["steps"] * tokens / 16384
        gang = {"accelerators": {kind: sizes}, "same_zone": False}
        return Job.model_validate(content | {"workload": work, "gang": gang, "status": None})

    return replace(instance, jobs=tuple(map(shaped, instance.jobs)))


def wrong_plans(seeds: range) -> dict[int, list[str]]:
    """Describe what is wrong with the plans of both programs, and with what is left out, by seed."""
    found: dict[int, list[str]] = {}
    for seed in seeds:
        solved = solve_instance(shaped_instance(seed))
        words = [word for job in solved.instance.jobs for word in wrongly_left_out(solved.instance, job)]
        words += judge_both(solved)
        if words:
            found[seed] = words
    return found


def wrongly_left_out(instance: Instance, job: Job) -> list[str]:
    """Gangs that the type left out although the oracle permits them, or kept although it forbids them."""
    finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=False)
    whole, dropped = finder.find(job)
    kept = {c.key for c in find_for_plan(finder, job)[0]}
    if len(kept) == len(whole):
        return []
    typed = job.model_copy(update={"placement": placement_type_of(finder, job, whole, dropped).type})
    forbidden = set()
    for c in whole:
        zones = {part.offer.zone for part in c.parts}
        region = next(r for r in instance.book.regions if r.id == c.region)
        if not c.running and unplaceable(typed, instance.book, c.parts[-1].machine, c.accelerators, zones, region):
            forbidden.add(c.key)
    return [] if kept == {c.key for c in whole} - forbidden else [f"{job.name}: kept {sorted(kept)}"]


def test_few_instances_keep_to_derived_types_at_the_least_cost() -> None:
    assert wrong_plans(FEW) == {}


@pytest.mark.slow
def test_40_instances_keep_to_derived_types_at_the_least_cost() -> None:
    assert wrong_plans(MANY) == {}


def test_derived_types_leave_gangs_out_in_some_instances() -> None:
    ruling: dict[str, int] = {}
    for seed in range(1, 200, 5):
        instance = shaped_instance(seed)
        finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=False)
        for job in instance.jobs:
            found, dropped = find_for_plan(finder, job)
            if any(drop.reason.startswith("derived") for drop in dropped):
                kind = placement_type_of(finder, job, found, dropped).type
                ruling[kind] = ruling.get(kind, 0) + 1
    # Communication has its night in tests/unit/test_derived_placements.py: few random gangs cross a slow network.
    assert sum(ruling.values()) >= 8, ruling
    assert {"memory", "data"} <= set(ruling), ruling
