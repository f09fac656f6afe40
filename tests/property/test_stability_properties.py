"""Keeping to any previous plan breaks no rule and costs no more than the thresholds allow."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from pricing.money import Usd
from router.planning.document.plan import Plan
from router.planning.explain.changes import plan_diff
from router.planning.planner import make_plan
from tests.support.checker import check_plan
from tests.support.instances import Instance, make_instance
from tests.support.solved_instances import request_of

FEW = range(2, 26, 6)
MANY = range(400, 500)
GAP = 0.1
LEAST = Usd.parse("5")
FINE = 3_000  # nano-dollars: a run in two pieces is rounded twice, and so is the one put back


def other_prices(instance: Instance, rng: Random) -> Instance:
    """The instance with prices a few percent up or down."""
    offers = [
        replace(offer, usd_per_hour=type(offer.usd_per_hour)(offer.usd_per_hour.nanos * rng.randrange(96, 105) // 100))
        for offer in instance.book.offers
    ]
    return replace(instance, book=instance.book.with_offers(offers))


def worth(plan: Plan) -> int:
    return (plan.cost_usd + plan.threshold_usd).nanos


def runs_by_job(plan: Plan) -> dict[str, list[tuple[object, ...]]]:
    """List place and time of each line by job: a job over several offers may be put back in one of them alone."""
    runs: dict[str, list[tuple[object, ...]]] = {}
    for line in plan.lines:
        place = (line.cloud, line.region, line.zone, line.instance_type, line.market)
        runs.setdefault(line.job, []).append((line.start, line.end, *place))
    return runs


def violations(seed: int) -> list[str]:
    """What a plan of the instance that keeps to a plan at other prices does wrong."""
    instance = make_instance(seed)
    previous = make_plan(request_of(other_prices(instance, Random(seed)), gap=GAP, resolve_limits=0, explained=False))
    fresh_request = request_of(instance, gap=GAP, resolve_limits=0, explained=False)
    fresh = make_plan(fresh_request)
    kept = make_plan(replace(fresh_request, previous=previous, least_saving=LEAST))
    found = check_plan(kept, instance.jobs, instance.book, instance.limits, slot=instance.slot)
    if {job.job for job in kept.unplaced} != {job.job for job in fresh.unplaced}:
        found.append("other jobs are left out")
    before, after = runs_by_job(fresh), runs_by_job(kept)
    back = sum(before.get(job) != after.get(job) for job in before.keys() | after.keys())
    if worth(kept) - worth(fresh) > back * LEAST.nanos + FINE * len(kept.jobs):
        found.append(f"costs {worth(kept) - worth(fresh)} nano-dollars more with {back} jobs put back")
    if worth(kept) > worth(fresh) + FINE * len(kept.jobs) and kept.gap > GAP + 1e-9:
        found.append(f"a gap of {kept.gap}")

    def changes(plan: Plan) -> int:
        changed = plan_diff(previous, plan).changes
        return sum(c.kind == "moved" or (c.kind == "retimed" and c.start_before != c.start_after) for c in changed)

    if changes(kept) > changes(fresh):
        found.append(f"{changes(kept)} jobs changed, without keeping {changes(fresh)}")
    return [f"seed {seed}: {words}" for words in found]


def test_keeping_to_a_previous_plan_breaks_no_rule() -> None:
    """Cost, limits, budgets and deadlines of a few instances, by the independent checker."""
    assert [words for seed in FEW for words in violations(seed)] == []


@pytest.mark.slow
def test_keeping_to_a_previous_plan_breaks_no_rule_in_many_instances() -> None:
    """The same on more of them."""
    assert [words for seed in MANY for words in violations(seed)] == []
