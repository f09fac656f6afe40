"""What moved between two plans, and the reason given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from router.planning.document.plan import Plan
from router.planning.document.plan_facts import JobPlacement, main_placement
from router.planning.explain.changes import PlacementChange, plan_diff
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.scenes import ALPS, NORTH, NORTH_SPOT, SOUTH, a_job, plan_of

CHEAP = offer("aws/south-1", "p9.48xlarge", "on_demand", "40")


def change(before: Plan, after: Plan, job: str = "a") -> PlacementChange:
    return next(c for c in plan_diff(before, after).changes if c.job == job)


def test_the_same_plan_has_no_changes() -> None:
    plan = plan_of([a_job("a"), a_job("b")], [NORTH, SOUTH])
    found = plan_diff(plan, plan)
    assert [(c.job, c.kind, c.why) for c in found.changes] == [("a", "same", ""), ("b", "same", "")]
    assert (found.same_book, found.same_jobs) == (True, True)
    assert found.cost_before == found.cost_after == plan.cost_usd


def test_jobs_come_and_go() -> None:
    before, after = plan_of([a_job("a"), a_job("b")], [NORTH]), plan_of([a_job("b"), a_job("c")], [NORTH])
    found = plan_diff(before, after)
    assert [(c.job, c.kind) for c in found.changes] == [("a", "gone"), ("b", "same"), ("c", "new")]
    assert [(c.cost_before is None, c.cost_after is None) for c in found.changes] == [
        (False, True),
        (False, False),
        (True, False),
    ]
    assert not found.same_jobs


def test_a_cheaper_place_elsewhere_is_a_move_because_the_prices_changed() -> None:
    found = change(plan_of([a_job()], [NORTH]), plan_of([a_job()], [NORTH, CHEAP]))
    assert (found.kind, str(found.before), str(found.after)) == (
        "moved",
        "aws/north-1 p9.48xlarge on_demand x8",
        "aws/south-1 p9.48xlarge on_demand x8",
    )
    assert "the prices changed; aws/south-1 p9.48xlarge on_demand x8 was not among its best before" in found.why
    assert "the old place would now cost $192." in found.why
    assert found.cost_before is not None
    assert found.cost_after is not None
    assert found.cost_after < found.cost_before


def test_an_old_place_that_is_gone_is_said_to_be() -> None:
    found = change(plan_of([a_job()], [NORTH]), plan_of([a_job()], [SOUTH]))
    assert "the old place is no longer among its best" in found.why


def test_the_same_place_at_another_price_is_repriced() -> None:
    dearer = replace(NORTH, usd_per_hour=NORTH.usd_per_hour.times(2))
    found = change(plan_of([a_job()], [NORTH]), plan_of([a_job()], [dearer]))
    place = "aws/north-1 p9.48xlarge on_demand x8"
    assert (found.kind, found.why) == ("repriced", f"{place} rose: $60.00 -> $120.00 an hour")


def test_the_same_place_at_another_time_is_retimed() -> None:
    found = change(plan_of([a_job()], [NORTH]), plan_of([a_job(earliest_start="+3h")], [NORTH]))
    assert (found.kind, found.why) == ("retimed", "the job changed")


@pytest.mark.parametrize("reason", ["limits", "job"])
def test_a_job_that_no_longer_fits_is_dropped_with_the_plans_reason(reason: str) -> None:
    before = plan_of([a_job()], [NORTH])
    if reason == "limits":
        quota = {"limits": [{"name": "none", "amount": 0, "unit": "machines"}]}
        after = plan_of([a_job()], [NORTH], quota)
    else:
        after = plan_of([a_job(deadline="+1h")], [NORTH])
    found = change(before, after)
    assert (found.kind, found.after, found.cost_after) == ("dropped", None, None)
    assert found.why.endswith(f"; {after.unplaced[0].reason}")
    assert found.why.startswith(
        "the limits changed; none: new, 0 machines" if reason == "limits" else "the job changed; "
    )
    back = change(after, before)
    assert (back.kind, back.before, back.cost_before) == ("placed", None, None)
    assert back.why != ""


def test_other_limits_are_named_when_nothing_else_changed() -> None:
    quota = {"limits": [{"name": "none", "region": "south-1", "amount": 0, "unit": "machines"}]}
    found = change(plan_of([a_job()], [NORTH, SOUTH]), plan_of([a_job()], [NORTH, SOUTH], quota))
    assert found.kind == "moved"
    assert found.why.startswith("the limits changed; none: new, 0 machines")


def test_a_job_left_out_of_both_is_the_same() -> None:
    plan = plan_of([a_job(deadline="+1h")], [NORTH])
    assert change(plan, plan).kind == "same"


def test_the_main_place_is_where_most_is_done_and_counts_the_whole_gang() -> None:
    job = simple_job("a", ("H100", 32), steps=300, steps_per_hour=100, on_demand_share=0.25)
    plan = plan_of([job], [NORTH, NORTH_SPOT])
    place = main_placement(plan.lines, "a")
    assert place == JobPlacement("aws", "north-1", None, "p9.48xlarge", "spot", 32)
    assert str(place) == "aws/north-1 p9.48xlarge spot x24 + on_demand x8"
    assert main_placement(plan.lines, "nobody") is None


def test_names_are_sorted_and_each_stands_once() -> None:
    names: list[Any] = ["zeta", "alpha", "mid"]
    plan = plan_of([a_job(name) for name in names], [NORTH, ALPS])
    assert [c.job for c in plan_diff(plan, plan).changes] == sorted(names)
