"""A job that runs stays put unless leaving is proven to be worth its least saving."""

from __future__ import annotations

from typing import Any

import pytest

from router.jobs.spec import Job
from router.planning.document.plan import Plan
from tests.support.made_up_book import offer
from tests.support.scenes import HOUR, NORTH, RUNNING_IN_NORTH, SOUTH, a_job, a_request, places, plan_of, problem_of


def running(**more: Any) -> Job:
    more.setdefault("status", {"steps_done": 100, "running": RUNNING_IN_NORTH})
    return a_job(**more)


def test_it_goes_on_where_it_runs_without_another_start() -> None:
    plan = plan_of([running()], [NORTH, SOUTH])
    # Two hours at $50 and a start-up of $10 beat two at $60, but by less than the checkpoint's way and the threshold.
    assert plan.lines[0].steps == 200
    near = plan_of([running()], [NORTH, offer("aws/south-1", "p9.48xlarge", "on_demand", "59")])
    assert places(near) == {"a": "aws/north-1 on_demand"}
    assert (near.lines[0].startup, near.threshold_usd.nanos) == (False, 0)
    assert near.lines[0].hours < 2.02


def test_it_leaves_where_that_saves_more_than_asked_and_the_threshold_is_counted() -> None:
    plan = plan_of([running(min_saving="$5")], [NORTH, offer("aws/south-1", "p9.48xlarge", "on_demand", "20")])
    assert places(plan) == {"a": "aws/south-1 on_demand"}
    assert str(plan.threshold_usd) == "5.00"
    assert [(m.what, m.source) for m in plan.moves] == [("checkpoint", "aws/north-1")]


@pytest.mark.parametrize(("least", "place"), [("$30", "aws/south-1"), ("$80", "aws/north-1")])
def test_the_least_saving_decides(least: str, place: str) -> None:
    """Going there saves about $76: two hours at $60 less two hours and a start-up at $20."""
    plan = plan_of([running(min_saving=least)], [NORTH, offer("aws/south-1", "p9.48xlarge", "on_demand", "20")])
    assert places(plan) == {"a": f"{place} on_demand"}


def test_within_the_gap_nothing_flips() -> None:
    """Leaving is cheaper, but by less than the gap: not proven, so it stays."""
    cheaper = offer("aws/south-1", "p9.48xlarge", "on_demand", "53")
    job = running(min_saving="$0", startup_minutes=0, checkpoint={"size_gib": 0.1})
    assert places(plan_of([job], [NORTH, cheaper], gap=0.2)) == {"a": "aws/north-1 on_demand"}
    assert places(plan_of([job], [NORTH, cheaper], gap=0.0)) == {"a": "aws/south-1 on_demand"}


def test_replanned_an_hour_later_with_its_status_it_stays() -> None:
    job = a_job(steps=500)
    first = plan_of([job], [NORTH, SOUTH], gap=0.01)
    assert places(first) == {"a": "aws/south-1 on_demand"}
    status = {"steps_done": 79, "running": RUNNING_IN_NORTH | {"region": "south-1"}}
    again = plan_of([a_job(steps=500, status=status)], [NORTH, SOUTH], gap=0.01, now=first.as_of + HOUR)
    assert places(again) == {"a": "aws/south-1 on_demand"}
    assert again.lines[0].start == first.as_of + HOUR
    assert not again.lines[0].startup


def test_it_must_leave_where_the_offer_is_gone_and_pays_for_the_start() -> None:
    plan = plan_of([running()], [SOUTH])
    assert places(plan) == {"a": "aws/south-1 on_demand"}
    assert plan.lines[0].startup
    assert str(plan.threshold_usd) == "1.00"
    assert problem_of(a_request([running()], [SOUTH])).candidates["a"][0].running is False


def test_a_deadline_that_its_place_cannot_keep_makes_it_leave() -> None:
    plan: Plan = plan_of([running(deadline="+2h")], [NORTH, SOUTH])
    assert plan.unplaced or places(plan)["a"].startswith("aws/north-1")
