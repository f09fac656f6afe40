"""Running jobs and backfill, on the compact program and on columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.explain.changes import plan_diff
from router.render.explain_text import job_text, plan_text
from tests.support.checker import check_plan
from tests.support.made_up_book import book
from tests.support.scenes import HOUR, NORTH, NOW, RUNNING_IN_NORTH, SOUTH, a_job, a_request, plan_of

BOTH = pytest.mark.parametrize("compact_jobs", [30, 0])
ONE_MACHINE = {"limits": [{"name": "quota", "region": "aws/north-1", "amount": 8, "unit": "accelerators"}]}


def running(name: str, **more: Any) -> Job:
    """A job that runs in north-1, with a third of its steps done."""
    steps = more.pop("steps", 300)
    done = 0 if more.get("checkpoint", {}) is None else steps // 3
    return a_job(name, steps=steps, status={"steps_done": done, "running": RUNNING_IN_NORTH}, **more)


def starts(plan: Plan) -> dict[str, float]:
    """Hours from now until each placed job begins."""
    return {job.job: (job.start - NOW) / HOUR for job in plan.jobs if job.start is not None}


def checked(jobs: list[Job], offers: Any, limits: Any, **knobs: Any) -> Plan:
    request = a_request(jobs, offers, limits, **knobs)
    plan = plan_of(jobs, offers, limits, **knobs)
    assert check_plan(plan, jobs, book(offers), request.limits, slot=HOUR) == []
    return plan_from_json(plan_to_json(plan))


@BOTH
def test_a_running_job_is_left_out_last_of_its_priority(compact_jobs: int) -> None:
    """There is time for one of two; the waiting one would be cheaper to place."""
    waits = a_job("waits", steps=100, deadline="+3h")
    runs = running("runs", deadline="+3h")
    plan = checked([runs, waits], [NORTH], ONE_MACHINE, compact_jobs=compact_jobs)
    assert starts(plan) == {"runs": 0.0}
    assert [item.job for item in plan.unplaced] == ["waits"]
    assert all(job.preemption is None for job in plan.jobs)


@BOTH
def test_a_running_job_pauses_for_an_equal_one_that_else_had_no_time(compact_jobs: int) -> None:
    waits = a_job("waits", steps=100, deadline="+2h")
    plan = checked([running("runs", deadline="+7h"), waits], [NORTH], ONE_MACHINE, compact_jobs=compact_jobs)
    assert plan.unplaced == ()
    assert starts(plan)["waits"] <= 0.8


@BOTH
def test_a_job_of_higher_priority_that_fits_nowhere_else_pauses_a_running_one(compact_jobs: int) -> None:
    urgent = a_job("urgent", steps=150, deadline="+2h", priority=1)
    jobs = [running("runs"), urgent]
    plan = checked(jobs, [NORTH], ONE_MACHINE, compact_jobs=compact_jobs)
    assert starts(plan) == {"runs": 2.0, "urgent": 0.0}
    (summary,) = (job for job in plan.jobs if job.job == "runs")
    assert summary.preemption is not None
    # Twelve minutes of a machine at $60 an hour.
    assert (summary.preemption.what, summary.preemption.by) == ("paused", ("urgent",))
    assert summary.preemption.restart_usd == Usd.parse("12")
    said = "runs now, and is paused for urgent; its restart costs $12.00"
    assert said in " ".join(job_text(plan, "runs").split())
    assert said in " ".join(plan_text(plan).split())
    before = plan_of(jobs[:1], [NORTH], ONE_MACHINE, compact_jobs=compact_jobs)
    (change,) = (one for one in plan_diff(before, plan).changes if one.job == "runs")
    assert said in change.why
    assert [cause.follows for cause in change.causes] == ["urgent"], change.causes


@BOTH
def test_a_job_of_higher_priority_that_fits_elsewhere_leaves_a_running_one_in_place(compact_jobs: int) -> None:
    """Elsewhere it costs three dollars more, the restart of the running job would cost twelve."""
    urgent = a_job("urgent", steps=150, deadline="+2h", priority=1)
    dear = replace(SOUTH, usd_per_hour=UsdPerHour.parse("62"))
    plan = checked([running("runs", deadline="+7h"), urgent], [NORTH, dear], ONE_MACHINE, compact_jobs=compact_jobs)
    assert starts(plan) == {"runs": 0.0, "urgent": 0.0}
    assert {line.job: line.region for line in plan.lines} == {"runs": "north-1", "urgent": "south-1"}


@BOTH
def test_a_running_job_that_cannot_resume_is_displaced_by_nobody(compact_jobs: int) -> None:
    urgent = a_job("urgent", steps=150, deadline="+2h", priority=9)
    plan = checked([running("runs", checkpoint=None), urgent], [NORTH], ONE_MACHINE, compact_jobs=compact_jobs)
    assert starts(plan) == {"runs": 0.0}
    assert [item.job for item in plan.unplaced] == ["urgent"]


@BOTH
def test_a_running_job_that_cannot_resume_moves_where_its_deadline_does_not_let_it_stay(compact_jobs: int) -> None:
    late = running("runs", checkpoint=None, steps=300, deadline="+2h")
    plan = checked([late], [NORTH], ONE_MACHINE, compact_jobs=compact_jobs)
    assert [item.job for item in plan.unplaced] == ["runs"]


@BOTH
def test_a_running_job_still_moves_for_its_own_saving(compact_jobs: int) -> None:
    dear = replace(NORTH, usd_per_hour=SOUTH.usd_per_hour.times(2))
    plan = checked([running("runs", steps=900)], [dear, SOUTH], {}, compact_jobs=compact_jobs)
    assert {line.region for line in plan.lines} == {"south-1"}
    assert plan.jobs[0].preemption is None


@BOTH
def test_a_short_job_is_put_before_a_large_one_that_waits_for_its_reservation(compact_jobs: int) -> None:
    """Backfill: the large job of high priority has to wait until its machines begin; the short one is done by then."""
    limits = {
        "limits": [{"name": "quota", "region": "aws/north-1", "amount": 16, "unit": "accelerators"}],
        "reservations": [
            {
                "name": "block",
                "cloud": "aws",
                "region": "south-1",
                "instance_type": "p9.48xlarge",
                "machines": 2,
                "from": "2026-11-21T20:00Z",
                "sunk": True,
            }
        ],
    }
    large = a_job("large", steps=380, priority=5, deadline="+8h", options=[("H100", 16)], startup_minutes=0)
    short = a_job("short", steps=150, startup_minutes=0, deadline="+2h")
    alone = checked([large], [NORTH, SOUTH], limits, compact_jobs=compact_jobs)
    both = checked([large, short], [NORTH, SOUTH], limits, compact_jobs=compact_jobs)
    assert starts(alone)["large"] == starts(both)["large"] == 2.0
    assert starts(both)["short"] == 0.0
    assert both.unplaced == ()


@BOTH
def test_a_short_job_is_put_before_a_large_one_that_waits_for_its_quota(compact_jobs: int) -> None:
    """Two machines: one runs a job until 20:00. The large job needs both; the short one takes the other until then."""
    limits = {"limits": [{"name": "quota", "region": "aws/north-1", "amount": 16, "unit": "accelerators"}]}
    runs = running("runs", steps=270, priority=9)
    large = a_job("large", steps=380, priority=5, deadline="+8h", options=[("H100", 16)], startup_minutes=0)
    short = a_job("short", steps=150, startup_minutes=0)
    waiting = checked([runs, large], [NORTH], limits, compact_jobs=compact_jobs)
    filled = checked([runs, large, short], [NORTH], limits, compact_jobs=compact_jobs)
    assert starts(waiting)["large"] == starts(filled)["large"] == 2.0
    assert starts(filled)["short"] == 0.0


@pytest.mark.parametrize("hours", [2, 4, 7])
def test_the_bound_counts_the_whole_restart_of_a_job_that_goes_on_beyond_the_horizon(hours: int) -> None:
    """Its shares of slots there would else start up for a share of the cost."""
    status = {"steps_done": 100, "running": RUNNING_IN_NORTH, "checkpoint_in": "aws/north-1"}
    paused = a_job("paused", steps=2000, status=status)
    urgent = a_job("urgent", steps=100 * hours - 30, deadline=f"+{hours}h", priority=1)
    plan = plan_of([paused, urgent], [replace(NORTH, machines_cap=1)])
    assert plan.gap < 1e-6
