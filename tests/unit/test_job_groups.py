"""``group`` in job files: placed jobs of one group are in one region, and plans say where that binds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.spec import Job
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.scenes import ALPS, NORTH, a_job, a_request, places, plan_of

BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])
SOUTH_ONE = offer("aws/south-1", "p9.48xlarge", "on_demand", "30", cap=1)


def member(name: str, **more: Any) -> Job:
    more.setdefault("deadline", "+4h")
    return a_job(name, group="rlhf", **more)


@BOTH
def test_they_go_where_all_of_them_can(compact_jobs: int) -> None:
    """South is cheapest and has one machine, Alps is forbidden to one of them: both go north."""
    jobs = [member("actor", residency={"allow": ["US"]}), member("critic")]
    offers = [NORTH, SOUTH_ONE, ALPS]
    alone = plan_of([job.model_copy(update={"group": None}) for job in jobs], offers, compact_jobs=compact_jobs)
    assert places(alone) == {"actor": "aws/south-1 on_demand", "critic": "aws/alps-1 on_demand"}
    plan = plan_of(jobs, offers, compact_jobs=compact_jobs)
    assert places(plan) == {"actor": "aws/north-1 on_demand", "critic": "aws/north-1 on_demand"}
    costs = {job.job: {cost.rule: cost.saving_usd.nanos for cost in job.constraint_costs} for job in plan.jobs}
    assert costs["critic"]["group"] > 0
    lacking = {f"{other.region}": other.lacks for job in plan.jobs for other in job.alternatives}
    assert lacking["alps-1"] == lacking["south-1"] == "group rlhf is in aws/north-1"


@BOTH
def test_a_job_left_out_is_told_where_its_group_is(compact_jobs: int) -> None:
    """They share no region: the one of higher priority is placed."""
    jobs = [member("actor", residency={"allow": ["US"]}, priority=1), member("critic", residency={"allow": ["EU"]})]
    plan = plan_of(jobs, [NORTH, ALPS], compact_jobs=compact_jobs)
    assert places(plan)["actor"] == "aws/north-1 on_demand"
    left = plan.unplaced[0]
    assert left.reason == "its group rlhf is in aws/north-1, where it finds no room"
    assert "leave group rlhf" in [found.change for found in left.relaxations]
    assert plan.stage_one_proven


@BOTH
def test_a_group_of_one_and_jobs_of_two_groups_are_free(compact_jobs: int) -> None:
    jobs = [a_job("a", group="one", deadline="+4h"), a_job("b", group="two", deadline="+4h")]
    plan = plan_of(jobs, [NORTH, SOUTH_ONE], compact_jobs=compact_jobs)
    assert sorted(places(plan).values()) == ["aws/north-1 on_demand", "aws/south-1 on_demand"]


@BOTH
def test_a_new_plan_does_not_part_a_group_for_the_places_of_the_last_one(compact_jobs: int) -> None:
    jobs = [member("actor"), member("critic")]
    before = plan_of([job.model_copy(update={"group": None}) for job in jobs], [NORTH, SOUTH_ONE])
    assert len(set(places(before).values())) == 2
    plan = plan_of(jobs, [NORTH, SOUTH_ONE], previous=before, gap=0.5, compact_jobs=compact_jobs)
    assert check_plan(plan, jobs, a_request([], [NORTH, SOUTH_ONE]).book, a_request([], []).limits) == []


def test_a_job_of_several_regions_is_in_no_group() -> None:
    with pytest.raises(ValidationError, match="may not use 2 regions"):
        member("a", regions=2)
    with pytest.raises(ValidationError, match="is no name"):
        a_job(group="Our Group")
    assert a_job().digest == a_job(group=None).digest != a_job(group="rlhf").digest
