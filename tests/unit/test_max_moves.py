"""``gang.max_moves``: how often a job may start beyond its first start, and what a plan says where that binds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.spec import Job
from router.planning.document.plan import Plan
from tests.support.made_up_book import offer
from tests.support.scenes import LAKE, NORTH, RUNNING_IN_NORTH, SOUTH, a_job, places, plan_of

CHEAP = offer("aws/south-1", "p9.48xlarge", "on_demand", "20")
BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])


def running(**more: Any) -> Job:
    return a_job(status={"steps_done": 100, "running": RUNNING_IN_NORTH}, min_saving="$0", **more)


def starts(plan: Plan) -> int:
    return sum(line.startup for line in plan.lines)


@BOTH
def test_a_running_job_that_may_not_move_stays_at_any_price(compact_jobs: int) -> None:
    free = plan_of([running()], [NORTH, CHEAP], compact_jobs=compact_jobs)
    plan = plan_of([running(max_moves=0)], [NORTH, CHEAP], compact_jobs=compact_jobs)
    assert (places(free), places(plan)) == ({"a": "aws/south-1 on_demand"}, {"a": "aws/north-1 on_demand"})
    assert starts(plan) == 0
    assert [(cost.rule, cost.saving_usd.nanos > 0) for cost in plan.jobs[0].constraint_costs] == [("max_moves", True)]
    assert plan.jobs[0].runner_up is None
    assert plan.jobs[0].alternatives[0].lacks == "max_moves: 0 keeps it where it runs"


@BOTH
def test_it_may_move_once_where_one_move_is_allowed(compact_jobs: int) -> None:
    plan = plan_of([running(max_moves=1)], [NORTH, CHEAP], compact_jobs=compact_jobs)
    assert (places(plan), starts(plan)) == ({"a": "aws/south-1 on_demand"}, 1)


@BOTH
def test_its_first_start_is_free_and_a_pause_is_a_move(compact_jobs: int) -> None:
    """The middle two hours of six belong to a job of higher priority: the other one pauses, or is left out."""
    first = a_job("first", steps=150, earliest_start="+2h", deadline="+4h", priority=1)
    one = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=1)

    def outcome(most: int | None) -> tuple[int, list[str]]:
        second = a_job("second", steps=320, deadline="+6h", **({} if most is None else {"max_moves": most}))
        plan = plan_of([first, second], [one], compact_jobs=compact_jobs)
        return starts(plan), [item.job for item in plan.unplaced]

    assert outcome(None) == outcome(1) == (3, [])
    assert outcome(0) == (1, ["second"])


@BOTH
def test_a_job_whose_place_is_gone_is_left_out_with_the_reason(compact_jobs: int) -> None:
    plan = plan_of([running(max_moves=0)], [SOUTH, LAKE], compact_jobs=compact_jobs)
    left = plan.unplaced[0]
    assert left.reason == "max_moves: 0 keeps it where it runs, and that place is not among its offers now"
    expected = [("max_moves 1", "then gcp/lake-1/a9-highgpu-8g/on_demandx8")]
    assert [(found.change, found.detail) for found in left.relaxations] == expected


def test_without_it_a_job_keeps_its_digest() -> None:
    assert a_job().digest == "90365dcbca094df22e6670fc0752074eabdc8ab4d05f7e361bed11ff04bb52ed"
    assert a_job(max_moves=0).digest != a_job().digest


@pytest.mark.parametrize("value", [-1, 1.5, "two"])
def test_anything_but_a_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        a_job(max_moves=value)
