"""Prices of a job's rules: what the whole plan gains without one of them, and how sure that is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing.money import ZERO, Usd
from router.planning.document.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.constraint_prices import ConstraintPrice, constraint_prices
from router.render.explain_text import prices_text
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, a_job, a_request

CHEAP = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30")
QUOTA = {"limits": [{"name": "lake", "cloud": "gcp", "amount": 1, "unit": "machines"}]}


def dollars(price: ConstraintPrice) -> float:
    return price.saves_usd.dollars()


def test_a_rule_costs_what_the_plan_saves_without_it() -> None:
    job = a_job(residency={"allow": ["aws"]}, deadline="+9h")
    free = job.model_copy(update={"residency": type(job.residency)()})
    request = a_request([job], [NORTH, CHEAP])
    residency, deadline = constraint_prices(request, "a")
    saved = make_plan(request).cost_usd - make_plan(replace(request, jobs=(free,))).cost_usd
    assert (residency.rule, residency.basis, residency.places) == ("residency", "resolved", 0)
    assert residency.saves_usd == saved > ZERO
    assert residency.instead == "gcp/lake-1 a9-highgpu-8g on_demand x8"
    assert (deadline.rule, deadline.basis, deadline.saves_usd, deadline.instead) == ("deadline", "resolved", ZERO, "")


def test_others_may_move_into_the_place_that_a_rule_kept() -> None:
    """Both want the cheap place before their deadlines. Held in place, the first one's deadline costs it nothing."""
    jobs = [a_job("a", deadline="+5h"), a_job("b", deadline="+5h")]
    request = a_request(jobs, [NORTH, CHEAP], QUOTA)
    plan = make_plan(request)
    at_lake = next(line.job for line in plan.lines if line.cloud == "gcp")
    summary = next(job for job in plan.jobs if job.job == at_lake)
    assert [cost.saving_usd for cost in summary.constraint_costs] == [ZERO]
    (deadline,) = constraint_prices(request, at_lake)
    assert dollars(deadline) > 1


def test_a_rule_that_leaves_another_job_out_costs_a_job() -> None:
    """There is one machine and time for one of two, unless the first may wait."""
    jobs = [a_job("a", deadline="+5h"), a_job("b", deadline="+5h", priority=-1)]
    request = a_request(jobs, [CHEAP], QUOTA)
    (deadline,) = constraint_prices(request, "a")
    assert (deadline.places, deadline.basis) == (1, "resolved")
    assert "1 more job, and the plan then costs $" in prices_text([deadline])


def test_a_budget_a_market_and_an_earliest_start_are_rules_too() -> None:
    job = a_job(budget="$4000", spot="never", earliest_start="+2h")
    rules = [price.rule for price in constraint_prices(a_request([job], [NORTH]), "a")]
    assert rules == ["budget", "market", "earliest start"]
    assert constraint_prices(a_request([a_job()], [NORTH]), "a") == ()
    assert prices_text([]) == "It has no rule to price.\n"


def open_gap(request: PlanRequest, dollars_open: float) -> Plan:
    """The plan as a search that was cut short returns it: with a bound that much below its cost."""
    plan = make_plan(request)
    return replace(plan, bound_usd=plan.cost_usd - Usd(round(dollars_open * 1e9)))


@pytest.mark.parametrize(("dollars_open", "basis"), [(0.5, "resolved"), (20, "at least"), (500, "at least")])
def test_a_search_that_did_not_close_proves_less(dollars_open: float, basis: str) -> None:
    request = a_request([a_job(residency={"allow": ["aws"]})], [NORTH, CHEAP])
    (proven,) = constraint_prices(request, "a")
    (price,) = constraint_prices(request, "a", lambda changed: open_gap(changed, dollars_open))
    assert price.basis == basis
    assert price.gap_usd.dollars() == pytest.approx(2 * dollars_open)
    least = dollars(proven) if basis == "resolved" else max(0.0, dollars(proven) - dollars_open)
    assert dollars(price) == pytest.approx(least)
    if basis == "at least":
        assert f"at least {'nothing' if least == 0 else '$'}" in prices_text([price])
