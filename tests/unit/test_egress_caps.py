"""``egress_caps_gb``: how much all moves of a plan may take out of a cloud in a month."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.document.plan_usage import EgressUsage
from tests.support.checker import check_plan
from tests.support.scenes import LAKE, NORTH, a_job, a_request, found_for, places, plan_of

BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])


def with_data(name: str, gib: float = 100, at: str = "aws/north-1", **more: Any) -> Job:
    """A job whose data lie in aws; 100 GiB are 107 GB."""
    return a_job(name, deadline="+8h", data={"uri": "s3://a/b", "at": at, "gib": gib}, **more)


def capped(gb: float, **more: Any) -> dict[str, Any]:
    return {"egress_caps_gb": {"aws": gb}, **more}


@BOTH
def test_as_many_jobs_leave_as_the_cap_has_room_for(compact_jobs: int) -> None:
    jobs = [with_data("a"), with_data("b"), with_data("c")]
    homes = {gb: places(plan_of(jobs, [NORTH, LAKE], capped(gb), compact_jobs=compact_jobs)) for gb in (90, 220, 400)}
    away = {gb: sum(place.startswith("gcp") for place in found.values()) for gb, found in homes.items()}
    assert away == {90: 0, 220: 2, 400: 3}


@BOTH
def test_what_left_before_counts_for_this_month_alone(compact_jobs: int) -> None:
    limits = capped(120, egress_month_to_date_gb={"aws": 60})
    now = datetime(2026, 11, 30, 20, tzinfo=UTC)
    plan = plan_of([with_data("a", at="aws/north-1")], [LAKE], limits, compact_jobs=compact_jobs, now=now)
    assert [(move.month, move.source.split("/")[0]) for move in plan.moves] == [("2026-12", "aws")]
    assert plan.lines[0].start == datetime(2026, 12, 1, tzinfo=UTC)
    assert check_plan(plan, [with_data("a")], a_request([], [LAKE]).book, Limits.model_validate(limits)) == []


@BOTH
def test_a_job_left_out_is_told_how_much_of_the_cap_is_missing(compact_jobs: int) -> None:
    jobs = [with_data("a", priority=1), with_data("b")]
    plan = plan_of(jobs, [LAKE], capped(150), compact_jobs=compact_jobs)
    assert places(plan)["a"] == "gcp/lake-1 on_demand"
    left = plan.unplaced[0]
    assert (left.job, left.relaxations[-1].change) == ("b", "+65 GB of the egress cap of aws")
    assert left.reason == "too much leaves aws in a month: +65 GB of the egress cap of aws would do"
    assert plan_of(jobs, [LAKE], capped(215), compact_jobs=compact_jobs).unplaced == ()


@BOTH
def test_moves_within_the_cloud_and_into_it_do_not_count(compact_jobs: int) -> None:
    jobs = [with_data("a", at="gcp/rhine-1"), with_data("b", at="cloudflare-r2/auto")]
    limits = {"egress_caps_gb": {"gcp": 0}}
    assert plan_of(jobs, [LAKE], limits, compact_jobs=compact_jobs).unplaced == ()
    free = plan_of(jobs[1:], [LAKE], {"egress_caps_gb": {"cloudflare-r2": 10}}, compact_jobs=compact_jobs)
    assert free.unplaced[0].reason == (
        "no offer passes the job's rules: egress cap of a cloud drops 1 (gcp/lake-1/a9-highgpu-8g/on_demand: 107 GB "
        "would leave cloudflare-r2, at most 10 GB may in a month)"
    )


@BOTH
def test_a_checkpoint_does_not_leave_a_capped_cloud_on_the_way(compact_jobs: int) -> None:
    """Two regions of two clouds carry the job together, and neither alone; a cap on one keeps it in its cloud."""
    half = {"limits": [{"name": "q", "cloud": "gcp", "unit": "machines", "amount": 1}]}
    other = a_job("other", steps=350, priority=1, deadline="+4h")
    job = a_job("split", steps=700, deadline="+8h", regions=2)
    free = plan_of([other, job], [NORTH, LAKE], half, compact_jobs=30)
    assert free.unplaced == ()
    plan = plan_of([other, job], [NORTH, LAKE], {**half, **capped(10)}, compact_jobs=compact_jobs)
    clouds = {line.cloud for line in plan.lines if line.job == "split"}
    assert len(clouds) < 2


def test_the_usage_says_what_leaves_and_is_absent_without_caps() -> None:
    plan = plan_of([with_data("a")], [LAKE], capped(400, egress_month_to_date_gb={"aws": 60}))
    assert plan.usage is not None
    assert plan.usage.egress == (EgressUsage("aws", "2026-11", 400.0, 60.0, 107.374182),)
    assert plan_from_json(plan_to_json(plan)) == plan
    assert '"egress"' not in plan_to_json(plan_of([with_data("a")], [LAKE]))


def test_what_is_dropped_says_why() -> None:
    kept, dropped = found_for(with_data("a"), [NORTH, LAKE], capped(90))
    assert {c.region.cloud for c in kept.values()} == {"aws"}
    assert [d.reason for d in dropped] == ["107 GB would leave aws, at most 90 GB may in a month"]


@pytest.mark.parametrize("caps", [{"aws": -1}, {"aws": "many"}, ["aws"]])
def test_what_is_refused(caps: object) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate({"egress_caps_gb": caps})
    assert '"egress_caps_gb"' not in Limits.none().to_json()
