"""Maintenance windows of the limits file: who may hold machines when, and what a plan says of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.limits import Limits
from router.planning.document.plan import Plan
from tests.support.checker import check_plan
from tests.support.scenes import HOUR, NORTH, NOW, RUNNING_IN_NORTH, SOUTH, a_job, a_request, places, plan_of

BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])


def window(start: float, until: float, **more: Any) -> dict[str, Any]:
    """A window from and until so many hours after now, by default over all of aws."""
    moments = {"from": (NOW + start * HOUR).isoformat(), "until": (NOW + until * HOUR).isoformat()}
    return {"maintenance": [{"name": "power", "cloud": "aws", **moments, **more}]}


def held(plan: Plan) -> list[tuple[float, float]]:
    """Begin and end of lines in hours after now."""
    return [((x.start - NOW) / HOUR, round((x.end - NOW) / HOUR, 1)) for x in plan.lines]


@BOTH
def test_a_job_pauses_over_a_window_and_pays_its_new_start(compact_jobs: int) -> None:
    job = a_job(steps=400, deadline="+7h")
    plan = plan_of([job], [NORTH], window(2, 4), compact_jobs=compact_jobs)
    assert held(plan) == [(0.0, 2.0), (4.0, 6.4)]
    assert [line.startup for line in plan.lines] == [True, True]


@BOTH
def test_a_job_that_cannot_resume_does_not_span_a_window(compact_jobs: int) -> None:
    whole = a_job(steps=300, deadline="+8h", checkpoint=None)
    assert held(plan_of([whole], [NORTH], window(2, 4), compact_jobs=compact_jobs)) == [(4.0, 7.2)]
    left = plan_of([whole], [NORTH], window(2, 6), compact_jobs=compact_jobs)
    assert left.unplaced[0].reason == "no machines during maintenance power"
    assert [found.change for found in left.unplaced[0].relaxations] == ["move maintenance power", "+2 h"][::-1]


@BOTH
def test_a_window_closes_what_it_names_and_nothing_else(compact_jobs: int) -> None:
    job = a_job(steps=300, deadline="+4h", checkpoint=None)
    for place, expected in (
        ({"region": "south-1"}, "aws/north-1 on_demand"),
        ({"region": "aws/south-1"}, "aws/north-1 on_demand"),
        ({"zone": "south-1a"}, "aws/south-1 on_demand"),
        ({"region": "south-1", "family": "g9"}, "aws/south-1 on_demand"),
        ({"region": "south-1", "family": ["g9", "p9"]}, "aws/north-1 on_demand"),
        ({"region": "south-1", "instance_type": "p9.24xlarge"}, "aws/south-1 on_demand"),
    ):
        plan = plan_of([job], [NORTH, SOUTH], window(1, 2, **place), compact_jobs=compact_jobs)
        assert places(plan) == {"a": expected}, place
    closed = plan_of([job], [NORTH, SOUTH], window(1, 2, region="south-1"), compact_jobs=compact_jobs)
    assert closed.jobs[0].alternatives[0].lacks == ("maintenance power from 2026-11-21 19:00Z until 2026-11-21 20:00Z")


@BOTH
def test_a_running_job_leaves_its_machines_when_the_window_begins(compact_jobs: int) -> None:
    job = a_job(steps=400, deadline="+8h", status={"steps_done": 100, "running": RUNNING_IN_NORTH})
    plan = plan_of([job], [NORTH], window(1, 2.5), compact_jobs=compact_jobs)
    assert held(plan) == [(0.0, 1.0), (2.5, 4.7)]
    assert [line.startup for line in plan.lines] == [False, True]
    stays = plan_of(
        [job.model_copy(update={"gang": job.gang.model_copy(update={"max_moves": 0})})], [NORTH], window(1, 2.5)
    )
    assert [item.reason for item in stays.unplaced] == ["no machines during maintenance power"]


@BOTH
def test_an_outlook_keeps_clear_of_windows_beyond_the_horizon(compact_jobs: int) -> None:
    request = a_request(
        [a_job(steps=5000, deadline="+72h")], [NORTH, SOUTH], window(11, 15.5), compact_jobs=compact_jobs
    )
    plan = plan_of(request.jobs, [NORTH, SOUTH], request.limits, compact_jobs=compact_jobs)
    assert check_plan(plan, request.jobs, request.book, request.limits) == []
    begin, end = NOW + 11 * HOUR, NOW + 15.5 * HOUR
    assert all(line.end <= begin or line.start >= end for line in plan.lines)
    assert any(line.kind == "outlook" for line in plan.lines)


def test_too_little_time_is_said_before_any_search() -> None:
    plan = plan_of([a_job(steps=300, deadline="+4h")], [NORTH, SOUTH], window(0.5, 3))
    assert plan.unplaced[0].reason == (
        "no machines during maintenance power: 150 of 300 steps can be done by the deadline"
    )


def test_limits_without_windows_keep_their_digest() -> None:
    assert '"maintenance"' not in Limits.none().to_json()
    limits = Limits.model_validate(window(1, 2))
    assert limits.digest != Limits.none().digest
    assert Limits.model_validate_json(limits.to_json()) == limits


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"until": NOW.isoformat()}, "ends before it begins"),
        ({"cloud": None}, "cloud"),
        ({"region": "gcp/lake-1"}, "the region is of gcp, the cloud is aws"),
        ({"from": "soon"}, "from"),
    ],
)
def test_what_is_refused(change: dict[str, Any], words: str) -> None:
    content = window(1, 2)
    content["maintenance"][0] |= change
    with pytest.raises(ValidationError, match=words):
        Limits.model_validate(content)
    twice = window(1, 2)
    twice["maintenance"] *= 2
    with pytest.raises(ValidationError, match="is there twice"):
        Limits.model_validate(twice)
    assert isinstance(datetime.fromisoformat(window(1, 2)["maintenance"][0]["from"]), datetime)
