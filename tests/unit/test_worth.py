"""Shadow prices: what a limit costs, against plans made with one unit more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.plan import Plan, ShadowPrice
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.explain import shadow_prices
from router.render.explain_text import plan_text
from router.render.gantt import worth_in_words
from router.render.plan_text import describe_shadow_price, table
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.scenes import NORTH, a_job, plan_of

CHEAP = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30")


LAKE_AT_60 = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "60")
VCPUS = 208  # of a machine there


def vcpus(machines: int) -> dict[str, Any]:
    return {"limits": [{"name": "lake", "cloud": "gcp", "amount": machines * VCPUS, "unit": "vcpus"}]}


def gang(name: str, machines: int, **fields: Any) -> Job:
    fields = {"checkpoint": {"size_gib": 10}, "startup_minutes": 12} | fields
    return simple_job(name, ("H100", 8 * machines), steps=300, steps_per_hour=100, **fields)


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


def test_a_quota_in_vcpus_is_raised_by_a_machine_of_the_gang() -> None:
    jobs = [gang(name, 1, deadline="+5h") for name in "abc"]
    plan, more = plan_of(jobs, [NORTH, CHEAP], vcpus(1)), plan_of(jobs, [NORTH, CHEAP], vcpus(2))
    (price,) = plan.shadow_prices
    assert (price.raised_by, price.machines, price.instance_type) == (VCPUS, 1, "a9-highgpu-8g")
    assert price.saves_usd == plan.cost_usd - more.cost_usd
    assert price.usd_per_unit.dollars() == pytest.approx(price.saves_usd.dollars() / VCPUS, abs=1e-8)
    assert f"1 machine more (208 vcpus) saves ${price.saves_usd.dollars():,.2f}: lake" in table(plan)
    assert plan_from_json(plan_to_json(plan)) == plan


def test_a_quota_that_blocks_a_gang_is_worth_something_only_with_all_its_machines() -> None:
    """Two hold the place for the night; one machine more carries nothing of a gang of two."""
    jobs = [gang(name, 2, deadline="+5h") for name in "ab"]
    plan, more = plan_of(jobs, [NORTH, CHEAP], vcpus(2)), plan_of(jobs, [NORTH, CHEAP], vcpus(4))
    (price,) = plan.shadow_prices
    assert (price.raised_by, price.machines) == (2 * VCPUS, 2)
    assert price.saves_usd == plan.cost_usd - more.cost_usd
    assert "2 machines more (416 vcpus) save $" in plan_text(plan)


def test_a_limit_that_leaves_a_job_out_is_worth_a_job_and_the_bill_rises() -> None:
    jobs = [gang("a", 1, deadline="+5h"), gang("b", 1, deadline="+5h", priority=1)]
    plan, more = plan_of(jobs, [CHEAP], quota(1)), plan_of(jobs, [CHEAP], quota(2))
    assert [job.job for job in plan.unplaced] == ["a"]
    (price,) = plan.shadow_prices
    assert (price.limit, price.basis, price.places) == ("lake", "resolved", 1)
    assert price.saves_usd == plan.cost_usd - more.cost_usd
    assert price.usd_per_unit.nanos < 0
    words = " ".join(table(plan).split())
    assert "LIMITS THAT COST JOBS OR MONEY" in words
    dearer = (more.cost_usd - plan.cost_usd).dollars()
    assert f"1 machine more places 1 more job, and the plan then costs ${dearer:,.2f} more: lake" in words


def test_a_threshold_that_nobody_pays_is_not_money() -> None:
    """The lesser of two must leave the place where it runs: $70 of min_saving are counted then, and a start is paid."""
    running = {
        "cloud": "gcp",
        "region": "lake-1",
        "instance_type": "a9-highgpu-8g",
        "market": "on_demand",
        "accelerators": 8,
    }
    moves = {"status": {"running": running, "steps_done": 0, "checkpoint_in": "gcp/lake-1"}, "min_saving": "$70"}
    jobs = [
        gang("a", 1, deadline="+5h", **moves),
        gang("b", 1, deadline="+5h", residency={"allow": ["gcp"]}, priority=1),
    ]
    offers = [NORTH, LAKE_AT_60]
    plan, more = plan_of(jobs, offers, quota(1)), plan_of(jobs, offers, quota(2))
    assert plan.threshold_usd.dollars() == 70
    assert more.threshold_usd.nanos == 0
    (price,) = plan.shadow_prices
    assert price.saves_usd == plan.cost_usd - more.cost_usd
    assert price.saves_usd.dollars() == pytest.approx(12)
    (estimate,) = plan_of(jobs, offers, quota(1), resolve_limits=0).shadow_prices or (price,)
    assert estimate.usd_per_unit.dollars() < 70


def test_of_a_large_plan_the_relaxation_is_solved_again_for_money_and_the_plan_for_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow_prices, "_FEW_SHARES", 0)
    (price,) = crowded(1).shadow_prices
    assert (price.basis, price.raised_by, price.machines) == ("lp_resolved", 1, 1)
    # One job more moves to the cheap place, whole or in part: no more than two could.
    alone = plan_of([a_job("a", deadline="+5h")], [NORTH]).cost_usd - plan_of([a_job("a")], [CHEAP]).cost_usd
    assert price.saves_usd is not None
    assert 0 < price.saves_usd.dollars() <= 2 * alone.dollars()
    assert crowded(3).shadow_prices == ()
    jobs = [gang("a", 1, deadline="+5h"), gang("b", 1, deadline="+5h", priority=1)]
    plan, more = plan_of(jobs, [CHEAP], quota(1)), plan_of(jobs, [CHEAP], quota(2))
    (price,) = plan.shadow_prices
    assert (price.basis, price.places, price.saves_usd) == ("resolved", 1, plan.cost_usd - more.cost_usd)


def test_by_columns_the_relaxation_is_solved_again_and_says_so() -> None:
    """Two jobs hold the place one after the other; shares of a third fit beside them, but it does not."""
    jobs = [gang(name, 2, deadline="+9h") for name in "abc"]
    plan = plan_of(jobs, [NORTH, CHEAP], quota(2), compact_jobs=0)
    (price,) = plan.shadow_prices
    assert (price.basis, price.raised_by, price.machines) == ("lp_resolved", 2, 2)
    assert price.saves_usd is not None
    assert price.usd_per_unit == Usd(price.saves_usd.nanos // 2)
    assert 0 < price.saves_usd.dollars() <= (plan.cost_usd - plan_of(jobs, [NORTH, CHEAP], quota(4)).cost_usd).dollars()
    assert f"2 machines more save about ${price.saves_usd.dollars():,.2f} (an LP, solved again): lake" in " ".join(
        table(plan).split()
    )
    assert "save ~$" in worth_in_words(price)
    least = replace(price, basis="lp_at_least")
    assert "save at least $" in describe_shadow_price(least)
    for unit, words in (("accelerators", "an accelerator"), ("USD", "a dollar"), ("machines", "a machine")):
        estimate = ShadowPrice("lake", Usd.parse("0.46"), unit, "lp_estimate")
        assert describe_shadow_price(estimate) == f"$0.46 {words} by an LP estimate, not solved again"
    assert plan_from_json(plan_to_json(replace(plan, shadow_prices=(least,)))).shadow_prices == (least,)
