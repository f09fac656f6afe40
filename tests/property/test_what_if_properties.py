"""What must hold of any variant: dropped regions stay unused, more of a limit costs no more, factor 1 is nothing."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_to_json
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.what_if import LimitChange, PriceScaling, RegionDrop, apply_changes, scopes_of
from tests.support.instances import make_instance
from tests.support.solved_instances import request_of

FEW, MANY = (5, 125, 305), range(400, 440)
GAP = 0.01


def request(seed: int) -> PlanRequest:
    return request_of(make_instance(seed), gap=GAP, resolve_limits=0, explained=False)


def left_out(plan: Plan, tiers: list[int]) -> tuple[int, ...]:
    count = Counter(item.priority for item in plan.unplaced)
    return tuple(count[tier] for tier in tiers)


def broken_rules(seed: int) -> list[str]:
    """The rules that variants of an instance break."""
    base_request = request(seed)
    base = make_plan(base_request)
    found = []
    for offer in base_request.book.offers:
        region = offer.region_id
        plan = make_plan(apply_changes(base_request, [RegionDrop(region)]))
        if any((line.cloud, line.region) == (region.cloud, region.region) for line in plan.lines):
            found.append(f"seed {seed}: the plan uses {region}, which was dropped")
    tiers = sorted({job.priority for job in base_request.jobs}, reverse=True)
    for limit in base_request.limits.limits:
        plan = make_plan(apply_changes(base_request, [LimitChange(limit.name, "+", Decimal(64))]))
        now, before = left_out(plan, tiers), left_out(base, tiers)
        dearer = (plan.cost_usd + plan.threshold_usd).dollars() * (1 - GAP) > (
            base.cost_usd + base.threshold_usd
        ).dollars() * (1 + 1e-6) + 1e-6
        if now > before or (now == before and dearer):
            found.append(f"seed {seed}: more of {limit.name} made it worse")
    one = [PriceScaling(scope, Decimal("1.00")) for scope in sorted(scopes_of(base_request.book.offers[0]))]
    if plan_to_json(make_plan(apply_changes(base_request, one))) != plan_to_json(base):
        found.append(f"seed {seed}: a factor of 1 changed the plan")
    return found


def test_variants_keep_their_rules() -> None:
    assert [words for seed in FEW for words in broken_rules(seed)] == []


@pytest.mark.slow
def test_variants_of_many_instances_keep_their_rules() -> None:
    assert [words for seed in MANY for words in broken_rules(seed)] == []
