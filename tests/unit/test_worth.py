"""Shadow prices: what a limit costs, against plans made with one unit more."""

from __future__ import annotations

from typing import Any

import pytest

from router.planning.plan import Plan
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, a_job, plan_of

CHEAP = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30")


def quota(machines: int) -> dict[str, Any]:
    return {"limits": [{"name": "lake", "cloud": "gcp", "amount": machines, "unit": "machines"}]}


def crowded(machines: int, **knobs: Any) -> Plan:
    """Three jobs, four hours each, done by the deadline: one after the other there is only one place of two."""
    return plan_of([a_job(name, deadline="+5h") for name in "abc"], [NORTH, CHEAP], quota(machines), **knobs)


def test_a_resolved_price_is_what_one_unit_more_saves() -> None:
    plan, more = crowded(1), crowded(2)
    (price,) = plan.shadow_prices
    assert (price.limit, price.unit, price.basis) == ("lake", "machines", "resolved")
    assert price.usd_per_unit.dollars() == pytest.approx((plan.cost_usd - more.cost_usd).dollars(), rel=0.01)


def test_an_estimate_says_that_it_is_one() -> None:
    (price,) = crowded(1, resolve_limits=0).shadow_prices
    assert (price.limit, price.basis) == ("lake", "lp_estimate")
    assert price.usd_per_unit.nanos > 0


def test_a_limit_that_does_not_bind_has_no_price() -> None:
    assert crowded(3).shadow_prices == ()
    assert plan_of([a_job()], [NORTH, CHEAP]).shadow_prices == ()


def test_an_offers_capacity_has_a_price_too() -> None:
    jobs = [a_job(name, deadline="+5h") for name in "ab"]
    plan = plan_of(jobs, [NORTH, offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30", cap=1)])
    (price,) = plan.shadow_prices
    assert (price.limit, price.unit) == ("capacity gcp/lake-1/a9-highgpu-8g/on_demand", "machines")


def test_prices_stand_dearest_first() -> None:
    plan = crowded(1)
    found = [p.usd_per_unit.nanos for p in plan.shadow_prices]
    assert found == sorted(found, reverse=True)
