"""What a plan says of limits, budgets and money at risk: outside its digest, and as its lines add up."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.controller.plans import orders_of
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_from_json
from router.planning.document.plan_usage import PlanUsage, UseStep
from router.planning.document.usage_totals import add_up_use, end_of_month, month_of
from tests.support.nights import NO_USAGE
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, SOUTH, a_job, plan_of

LATE_IN_THE_MONTH = datetime(2026, 11, 30, 18, tzinfo=UTC)
LIMITS: dict[str, Any] = {
    "limits": [
        {"name": "north", "cloud": "aws", "region": "north-1", "amount": 1, "unit": "machines", "kind": "stock"},
        {"name": "never reached", "cloud": "aws", "amount": 99, "unit": "machines"},
    ],
    "teams": [{"team": "team-a", "budget": "9000", "spent": "12.50"}, {"team": "idle", "budget": "70"}],
}


def some_plan(now: datetime = NOW) -> Plan:
    jobs = [a_job(name, steps=400, team="team-a", deadline="+30h") for name in ("a", "b", "c")]
    return plan_of([*jobs, a_job("long", steps=2500, team="team-a")], [NORTH, NORTH_SPOT, SOUTH], LIMITS, now=now)


def usage_of(plan: Plan) -> PlanUsage:
    assert plan.usage is not None
    return plan.usage


def test_the_digest_is_not_over_the_usage() -> None:
    plan = some_plan()
    other = replace(plan, usage=NO_USAGE)
    assert plan_content(plan)["digest"] == plan_content(other)["digest"]


def test_a_plan_without_its_usage_is_refused() -> None:
    content = plan_content(some_plan())
    del content["usage"]
    with pytest.raises(InvalidInputError, match="was changed after it was made"):
        plan_from_json(json.dumps(content))


@pytest.mark.parametrize("change", [{"at_risk_usd": "1.00"}, {"teams": []}, {"digest": None}, None])
def test_an_edited_usage_is_refused(change: dict[str, Any] | None) -> None:
    content = plan_content(some_plan())
    edited = {**content, "usage": "none" if change is None else {**content["usage"], **change}}
    with pytest.raises(InvalidInputError, match="was changed after it was made"):
        plan_from_json(json.dumps(edited))


def test_usage_of_another_plan_is_refused() -> None:
    content, other = plan_content(some_plan()), plan_content(replace(some_plan(), solver="other"))
    with pytest.raises(InvalidInputError, match=r"usage\.digest"):
        plan_from_json(json.dumps({**content, "usage": other["usage"]}))


def test_use_of_a_full_limit_is_that_of_the_lines_at_every_edge() -> None:
    plan = some_plan()
    (north,) = (limit for limit in usage_of(plan).limits if limit.limit == "north")
    assert (north.kind, north.cloud, north.region, north.amount, north.full) == ("stock", "aws", "north-1", 1, True)
    lines = [line for line in plan.lines if line.region == "north-1"]
    edges = {edge for line in lines for edge in (line.start, line.end)}
    assert edges
    for at in edges | {edge - timedelta(minutes=1) for edge in edges}:
        alive = [line for line in plan.lines if line.start <= at < line.end]
        held = 0.0
        for line in alive:
            behind = line.fallback
            kept = behind is not None and behind.reserved and behind.region == "north-1"
            own = line.machines if line in lines else 0
            held += line.share * max(own, behind.machines if kept and behind is not None else 0)
        used = sum(step.used for step in north.use if step.start <= at < step.end)
        assert used == pytest.approx(held, abs=1e-6)


def test_a_limit_that_is_never_full_and_costs_nothing_is_left_out() -> None:
    plan = some_plan()
    names = {limit.limit for limit in usage_of(plan).limits}
    assert "never reached" not in names
    assert {price.limit for price in plan.shadow_prices if price.unit != "USD"} <= names


def test_use_that_overlaps_adds_up_and_equal_neighbours_are_one_step() -> None:
    def at(hour: int) -> datetime:
        return NOW + timedelta(hours=hour)

    uses = [UseStep(at(0), at(4), 2), UseStep(at(1), at(2), 0.5), UseStep(at(4), at(6), 2), UseStep(at(8), at(9), 1)]
    assert add_up_use(uses) == (
        UseStep(at(0), at(1), 2),
        UseStep(at(1), at(2), 2.5),
        UseStep(at(2), at(6), 2),
        UseStep(at(8), at(9), 1),
    )
    assert add_up_use([]) == ()


@pytest.mark.parametrize("now", [NOW, LATE_IN_THE_MONTH])
def test_a_budget_has_orders_whole_and_the_outlook_of_its_month(now: datetime) -> None:
    plan = some_plan(now)
    idle, team = usage_of(plan).teams
    assert (idle.team, idle.together_usd) == ("idle", Usd(0))
    assert (str(team.budget_usd), str(team.spent_usd), team.orders_usd) == ("9000.00", "12.50", plan.orders_usd)
    outlook = [line for line in plan.lines if line.kind == "outlook"]
    month_end = datetime(2026, 12, 1, tzinfo=UTC)
    shares = [max(Fraction((min(x.end, month_end) - x.start) / (x.end - x.start)), Fraction(0)) for x in outlook]
    wanted = sum(x.cost_usd.nanos * share for x, share in zip(outlook, shares, strict=True))
    assert outlook
    assert team.outlook_usd.nanos == pytest.approx(float(wanted), abs=len(outlook))
    assert (team.outlook_usd == Usd(0)) == (now == LATE_IN_THE_MONTH)


def test_money_at_risk_is_that_of_the_orders() -> None:
    plan = some_plan()
    assert plan.orders_usd.nanos > 0
    assert usage_of(plan).at_risk_usd == plan.at_risk_usd == Usd.total(order.at_risk_usd for order in orders_of(plan))


def test_a_month_ends_at_midnight_in_utc() -> None:
    assert month_of(LATE_IN_THE_MONTH) == "2026-11"
    assert end_of_month(LATE_IN_THE_MONTH) == datetime(2026, 12, 1, tzinfo=UTC)
    assert end_of_month(datetime(2026, 12, 31, 23, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)
