"""What speaks against carrying a plan out: its age, prices above its ceilings, money; and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from pricing.offers import mark_stale
from router.controller.accept.guardrails import CostLimits, Refusal, RefusalReason, current_prices, find_refusals
from router.controller.plans import orders_of
from router.jobs.limits import Limits
from router.planning.document.plan import Plan
from router.planning.document.restricted_plan import restrict_plan
from tests.support.made_up_book import book, offer
from tests.support.scenes import NOW, a_job, plan_of

PLACE = "aws/north-1"
BOOK = book([offer(PLACE, "p9.48xlarge", "spot", "20"), offer(PLACE, "p9.48xlarge", "on_demand", "40")])


@pytest.fixture(scope="module")
def plan() -> Plan:
    found = plan_of([a_job()], BOOK.offers)
    assert orders_of(found)
    return found


NO_LIMITS = CostLimits()


def causes(
    plan: Plan, now_book: PriceBook = BOOK, guard: CostLimits = NO_LIMITS, later: float = 1.0
) -> list[RefusalReason]:
    return [refusal.cause for refusal in found(plan, now_book, guard, later)]


def found(plan: Plan, now_book: PriceBook, guard: CostLimits, later: float) -> tuple[Refusal, ...]:
    orders = orders_of(plan)
    prices = current_prices(orders, now_book, Limits.none())
    at_risk = Usd.total(order.at_risk_usd for order in orders)
    return find_refusals(plan, prices, guard, plan.as_of + timedelta(hours=later), at_risk=at_risk, book=now_book)


def at(spot: str) -> PriceBook:
    return book([offer(PLACE, "p9.48xlarge", "spot", spot), offer(PLACE, "p9.48xlarge", "on_demand", "60")])


def test_at_the_plans_own_prices_nothing_speaks_against_it(plan: Plan) -> None:
    assert causes(plan) == []


def test_the_part_of_a_plan_that_a_team_may_see_is_refused(plan: Plan) -> None:
    part = restrict_plan(plan, {plan.jobs[0].team})
    assert part.lines == plan.lines
    assert causes(part) == [RefusalReason.PART]


def test_up_to_the_ceiling_a_price_may_move(plan: Plan) -> None:
    """The ceiling of a spot line is the on-demand price that the plan saw: 40."""
    assert causes(plan, at("40")) == []
    assert causes(plan, at("40.01")) == [RefusalReason.PRICE]


def test_what_is_not_sold_any_more(plan: Plan) -> None:
    assert set(causes(plan, book([offer(PLACE, "p9.24xlarge", "spot", "10")]))) == {RefusalReason.GONE}


def test_zones_of_now_serve_a_line_that_leaves_the_zone_open(plan: Plan) -> None:
    zoned = [offer(PLACE, "p9.48xlarge", "spot", price, zone=zone) for zone, price in (("a", "90"), ("b", "30"))]
    prices = current_prices(orders_of(plan), book(zoned), Limits.none())
    assert {price.usd_per_hour for price in prices} == {UsdPerHour.parse(30)}


def test_a_price_that_could_not_be_refreshed_is_marked(plan: Plan) -> None:
    stale = BOOK.with_offers(mark_stale(o, BOOK.as_of.date()) for o in BOOK.offers)
    assert {price.unsure for price in current_prices(orders_of(plan), stale, Limits.none())} == {True}


def test_an_expired_plan(plan: Plan) -> None:
    assert causes(plan, later=(plan.expires_at - plan.as_of) / timedelta(hours=1)) == []
    assert causes(plan, later=(plan.expires_at - plan.as_of) / timedelta(hours=1) + 0.01) == [RefusalReason.EXPIRED]


def test_money_at_risk_is_the_ceiling_for_all_the_time_held(plan: Plan) -> None:
    orders = orders_of(plan)
    at_risk = Usd.total(order.at_risk_usd for order in orders)
    held = sum(((line.end - line.start) / timedelta(hours=1) * line.machines for o in orders for line in o.lines), 0.0)
    assert at_risk.dollars() == pytest.approx(40 * held)
    assert causes(plan, guard=CostLimits(max_cost=at_risk)) == []
    less = Usd(at_risk.nanos - 1)
    assert causes(plan, guard=CostLimits(max_cost=less)) == [RefusalReason.COST]
    assert causes(plan, guard=CostLimits(approve_above=less)) == [RefusalReason.APPROVAL]
    assert causes(plan, guard=CostLimits(approve_above=less, approved_by="ada")) == []


def test_outlook_and_what_is_only_shown_are_not_ordered(plan: Plan) -> None:
    for change in ({"kind": "outlook"}, {"provisionable": False}):
        other = replace(plan, lines=tuple(replace(line, **change) for line in plan.lines))
        assert orders_of(other) == ()


def test_a_gang_of_two_lines_is_one_order(plan: Plan) -> None:
    line = plan.lines[0]
    twice = replace(plan, lines=(line, replace(line, market="on_demand")))
    (order,) = orders_of(twice)
    assert (order.machines, len(order.lines)) == (2 * line.machines, 2)
    assert order.ceiling.nanos == 2 * line.max_usd_per_hour.nanos


def test_now_is_the_scenes_moment(plan: Plan) -> None:
    assert plan.as_of == NOW
