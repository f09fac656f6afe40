"""Plans with a weight of carbon against every possible plan, by the compact program and by columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from pricing.money import ZERO
from pricing.places import Region
from router.jobs.limits import Limits
from router.jobs.spec import Job
from tests.support.instances import Instance, make_instance
from tests.support.solved_instances import exact_plan, judge_both, solve_instance

FEW, MANY = range(5, 200, 96), range(0, 200, 4)


def weighed_instance(seed: int, usd_per_tonne: int | None = None) -> Instance:
    """The instance of the seed with grids from clean to dirty, some unknown, and a weight that matters."""
    rng, instance = Random(f"carbon of {seed}"), make_instance(seed)

    def with_grid(region: Region) -> Region:
        return replace(region, grid_carbon_gco2_per_kwh=rng.choice((None, 20, 60, 200, 400, 700)))

    regions = [with_grid(region) for region in instance.book.regions]
    regions[0] = replace(regions[0], grid_carbon_gco2_per_kwh=350)
    weight = rng.choice((0, 100, 1000, 5000, 20000)) if usd_per_tonne is None else usd_per_tonne
    content = instance.limits.model_dump(mode="json") | {"carbon": {"usd_per_tonne": str(weight)}}
    limits = Limits.model_validate(content)
    return replace(instance, book=replace(instance.book, regions=tuple(regions)), limits=limits)


def wrong_plans(seeds: range) -> dict[int, list[str]]:
    """Describe what is wrong with the plans of both programs, by seed."""
    found: dict[int, list[str]] = {}
    for seed in seeds:
        if words := judge_both(solve_instance(weighed_instance(seed))):
            found[seed] = words
    return found


def without_threshold(job: Job) -> Job:
    """The job with starts that are free, on any number of machines, so that more nights place all of theirs."""
    return job.model_copy(update={"gang": job.gang.model_copy(update={"min_saving": ZERO, "machines": None})})


def test_few_plans_weigh_carbon_exactly() -> None:
    assert wrong_plans(FEW) == {}


@pytest.mark.slow
def test_100_plans_weigh_carbon_exactly() -> None:
    assert wrong_plans(MANY) == {}


def test_a_higher_weight_never_emits_more_and_never_costs_less() -> None:
    """Both plans are optimal, place the same jobs, and no start has a threshold."""
    fell = 0
    for seed in range(0, 40, 10):
        plans = []
        for weight in (0, 2000, 30000):
            instance = weighed_instance(seed, weight)
            instance = replace(instance, jobs=tuple(map(without_threshold, instance.jobs)))
            plans.append(exact_plan(instance))
        for low, high in pairwise(plans):
            if len(low.unplaced) != len(high.unplaced) or low.unplaced:
                continue
            assert low.carbon is not None
            assert high.carbon is not None
            assert high.carbon.grams_co2e <= low.carbon.grams_co2e * (1 + 1e-6) + 5, seed
            assert high.cost_usd.dollars() >= low.cost_usd.dollars() * (1 - 1e-6), seed
            fell += high.carbon.grams_co2e < low.carbon.grams_co2e * 0.9
    assert fell >= 1
