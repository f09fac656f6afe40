"""Plans by columns: running jobs, shares, early starts, jobs left out, time that is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from router.planning.plan import Plan
from router.planning.planner import make_plan
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, SOUTH, a_job, a_request, places

HOUR = timedelta(hours=1)


def by_columns(jobs: list[Any], offers: list[Any], limits: Any = None, **knobs: Any) -> Plan:
    """The plan by columns, which the independent checker accepts."""
    request = a_request(jobs, offers, limits, compact_jobs=0, **knobs)
    plan = make_plan(request)
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
    return plan


def in_one_program(jobs: list[Any], offers: list[Any], limits: Any = None, **knobs: Any) -> Plan:
    """The plan of the compact program."""
    return make_plan(a_request(jobs, offers, limits, **knobs))


def test_the_cheaper_place_is_taken_by_as_many_as_fit() -> None:
    jobs = [a_job(name, steps=200) for name in ("a", "b", "c")]
    one = offer("aws/south-1", "p9.48xlarge", "on_demand", "50", cap=1)
    columns, compact = (plan(jobs, [NORTH, one]) for plan in (by_columns, in_one_program))
    assert sorted(places(columns).values()) == sorted(places(compact).values())
    assert columns.cost_usd == compact.cost_usd
    assert columns.status == "optimal"
    assert columns.bound_usd <= columns.cost_usd


def test_runs_start_as_early_as_they_can() -> None:
    plan = by_columns([a_job("a", steps=100)], [NORTH], gap=0.1)
    assert [line.start for line in plan.lines] == [plan.as_of]


def test_a_budget_that_is_too_small_leaves_out_the_fewest_and_the_bound_is_of_as_many() -> None:
    jobs = [a_job(name, steps=200) for name in ("a", "b", "c")]
    limits = {"teams": [{"team": jobs[0].team, "budget": "$300"}]}
    columns, compact = (plan(jobs, [NORTH], limits) for plan in (by_columns, in_one_program))
    assert len(columns.unplaced) == len(compact.unplaced) == 1
    assert columns.stage_one_proven
    assert columns.cost_usd == compact.cost_usd
    assert 0 < columns.bound_usd.nanos <= columns.cost_usd.nanos


def test_a_job_that_runs_stays_where_moving_saves_too_little() -> None:
    here = {"cloud": "aws", "region": "north-1", "instance_type": "p9.48xlarge", "market": "on_demand"}
    status = {"steps_done": 100, "running": {**here, "accelerators": 8}}
    dear = offer("aws/north-1", "p9.48xlarge", "on_demand", "50.10")
    plan = by_columns([a_job("a", steps=1000, status=status)], [dear, SOUTH], gap=0.02)
    assert places(plan) == {"a": "aws/north-1 on_demand"}
    assert not any(line.startup for line in plan.lines)


def test_time_that_is_over_still_gives_a_plan_and_says_so() -> None:
    request = a_request([a_job("a"), a_job("b")], [NORTH, SOUTH], compact_jobs=0, time_limit=timedelta(0))
    plan = make_plan(request)
    assert check_plan(plan, request.jobs, request.book, request.limits) == []
    assert plan.time_limit_hit
    assert plan.cuts


def test_no_job_is_a_plan_too() -> None:
    plan = by_columns([], [NORTH])
    assert plan.lines == ()
    assert plan.cost_usd.nanos == 0


def test_the_same_jobs_in_another_order_give_the_same_plan() -> None:
    jobs = [a_job(name, steps=100 + 40 * number) for number, name in enumerate("abcdef")]
    one = offer("aws/south-1", "p9.48xlarge", "on_demand", "50", cap=2)
    assert by_columns(jobs, [NORTH, one]) == by_columns(jobs[::-1], [NORTH, one])
