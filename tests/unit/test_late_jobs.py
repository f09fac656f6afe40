"""``late: allowed`` in job files: jobs that nothing holds in time are placed late, after all others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.spec import Job
from router.planning.document.plan import Cut, Lateness, Plan
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.planning.improve.late_jobs import LATE_JOBS, JobOrder, plan_late_jobs
from router.planning.planner import make_plan
from router.planning.program.effort import Effort
from router.planning.program.planning_input import PlannedJobs
from router.planning.program.solver import PulpSolver
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.scenes import (
    ALPS,
    HOUR,
    NORTH,
    NORTH_SPOT,
    NOW,
    RUNNING_IN_NORTH,
    SOUTH,
    a_job,
    a_request,
    answer_of,
    input_of,
)

BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])
ONE = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=1)


def allowed(name: str = "a", **more: Any) -> Job:
    """A job of 3.2 h that may be late."""
    return a_job(name, late="allowed", **more)


def checked(jobs: list[Job], offers: list[Any], limits: Any = None, **knobs: Any) -> Plan:
    """The plan, which breaks no promise."""
    request = a_request(jobs, offers, limits, resolve_limits=0, **knobs)
    plan = make_plan(request)
    assert check_plan(plan, jobs, request.book, request.limits, slot=request.slot) == []
    return plan


def late_of(plan: Plan) -> dict[str, Lateness]:
    return {job.job: job.late for job in plan.jobs if job.late is not None}


@BOTH
def test_a_job_that_nothing_holds_in_time_is_done_as_soon_as_it_can_be(compact_jobs: int) -> None:
    """It needs 3.2 h and what checkpoints take: the first hour by which it is sure to be done is the fourth."""
    plan = checked([allowed(deadline="+2h")], [NORTH, SOUTH], compact_jobs=compact_jobs)
    late = late_of(plan)["a"]
    assert late.by_hours == pytest.approx(1.2, abs=0.01)
    assert late.planned_deadline == NOW + 4 * HOUR
    assert late.why.startswith("the deadline is too near: 3.0 h needed on the fastest offer")
    assert str(late).startswith("late: 1.2 h after its deadline; the deadline is too near")
    job = plan.jobs[0]
    assert job.deadline == NOW + 2 * HOUR
    assert job.on_time_probability == pytest.approx(0, abs=1e-6)
    assert (plan.status, plan.unplaced) == ("optimal", ())


@BOTH
def test_where_all_jobs_fit_in_time_the_plan_is_the_same(compact_jobs: int) -> None:
    jobs = [a_job("a", deadline="+6h"), a_job("b", deadline="+4h")]
    free = [job.model_copy(update={"late": "allowed"}) for job in jobs]
    before, plan = (checked(each, [NORTH, SOUTH], compact_jobs=compact_jobs) for each in (jobs, free))
    assert late_of(plan) == {}
    assert (plan.lines, plan.bound_usd, plan.gap) == (before.lines, before.bound_usd, before.gap)


@BOTH
def test_a_job_without_room_in_time_comes_after_the_others(compact_jobs: int) -> None:
    """One machine, and two jobs of 3.2 h that are due in four."""
    jobs = [a_job("first", deadline="+4h", priority=1), allowed("second", deadline="+4h")]
    plan = checked(jobs, [ONE], compact_jobs=compact_jobs)
    assert list(late_of(plan)) == ["second"]
    late = late_of(plan)["second"]
    assert late.planned_deadline == NOW + 8 * HOUR
    assert late.why == "the other jobs leave it no room until then"


@BOTH
def test_a_late_job_of_the_highest_priority_displaces_nobody(compact_jobs: int) -> None:
    """Alone it would be done after four hours, which the job that is in time needs itself."""
    jobs = [a_job("first", deadline="+4h"), allowed("second", deadline="+3h", priority=9)]
    plan = checked(jobs, [ONE], compact_jobs=compact_jobs)
    assert list(late_of(plan)) == ["second"]
    assert next(line.start for line in plan.lines if line.job == "first") == NOW
    assert late_of(plan)["second"].planned_deadline == NOW + 8 * HOUR


@BOTH
def test_of_late_jobs_each_gets_its_turn(compact_jobs: int) -> None:
    """Three jobs that could not be in time share one machine: each round moves those that found no room."""
    jobs = [allowed(name, deadline="+2h", priority=number) for number, name in enumerate("abc")]
    plan = checked(jobs, [ONE], compact_jobs=compact_jobs, horizon=24 * HOUR)
    assert plan.unplaced == ()
    assert [late_of(plan)[name].planned_deadline - NOW for name in "cba"] == [4 * HOUR, 8 * HOUR, 12 * HOUR]


def test_a_job_that_no_later_deadline_helps_is_left_out_with_its_own_reason() -> None:
    plan = checked([allowed(deadline="+2h", budget="$20")], [NORTH])
    left = plan.unplaced[0]
    assert left.reason.startswith("the deadline is too near: 3.0 h needed")
    assert "it fits neither" in left.reason
    plan = checked([allowed(deadline="+2h", residency={"allow": ["EU"]})], [NORTH])
    assert plan.unplaced[0].reason.startswith("the price book has no H100 where residency lets the job run")
    assert "neither" not in plan.unplaced[0].reason


def test_a_deadline_that_has_passed_is_met_as_soon_as_can_be() -> None:
    plan = checked([allowed(deadline=(NOW - 5 * HOUR).isoformat())], [NORTH])
    late = late_of(plan)["a"]
    assert late.by_hours == pytest.approx(8.2, abs=0.01)
    assert late.why.startswith("no time is left: 3.0 h needed")
    assert plan.jobs[0].on_time_probability == 0.0


def test_the_chance_of_a_late_job_is_that_of_its_own_deadline() -> None:
    """Its speed may be ten per cent off: it is not hopeless that it is done half an hour before the time reserved."""
    plan = checked([allowed(deadline="+3h", relative_error=0.1)], [NORTH])
    late, chance = late_of(plan)["a"], plan.jobs[0].on_time_probability
    assert late.by_hours > 0.3
    assert chance is not None
    assert 0.005 < chance < 0.3


def test_a_running_job_that_cannot_resume_displaces_nobody_when_it_is_late() -> None:
    """In time, such a job stays wherever it can; late, it may only go on where the others leave it room."""
    running = allowed("late", deadline="+2h", checkpoint="none", status={"running": RUNNING_IN_NORTH}, priority=5)
    jobs = [a_job("in-time", deadline="+4h", priority=0), running]
    plan = checked(jobs, [ONE], horizon=24 * HOUR)
    assert next(line.start for line in plan.lines if line.job == "in-time") == NOW
    assert late_of(plan)["late"].planned_deadline == NOW + 8 * HOUR


def stopped_when(words: str) -> Plan:
    """The plan whose time is over from the moment that planning says these words."""
    over = []
    request = a_request([a_job("first"), allowed("second", deadline="+2h")], [NORTH], resolve_limits=0)

    def progress(said: str) -> None:
        if said.startswith(words):
            over.append(said)

    return make_plan(request, progress=progress, clock=lambda: 1e6 if over else 0.0)


def test_a_plan_whose_time_is_used_up_keeps_the_first_answer_and_says_so() -> None:
    plan = stopped_when("improving")
    assert [left.job for left in plan.unplaced] == ["second"]
    assert plan.unplaced[0].reason.endswith("2.0 h left")
    assert Cut(LATE_JOBS, "time") in plan.cuts
    assert plan.time_limit_hit


def test_a_second_search_that_ends_early_never_costs_a_job_its_place() -> None:
    plan = stopped_when("planning 1 late")
    assert "first" not in {left.job for left in plan.unplaced}
    assert plan.time_limit_hit


def test_an_answer_without_a_job_that_was_in_time_is_dropped() -> None:
    request = a_request([a_job("first"), allowed("second", deadline="+2h")], [NORTH])
    first = PlannedJobs(input_of(request), answer_of(request))
    asked: list[JobOrder] = []

    def plan_again(jobs: tuple[Job, ...], order: JobOrder) -> PlannedJobs:
        asked.append(order)
        return replace(first, answer=replace(first.answer, runs={}, holdings={}))

    effort = Effort(PulpSolver(), timedelta(minutes=1), clock=lambda: 0.0)
    found = plan_late_jobs(first, plan_again, effort, HOUR)
    assert asked == [JobOrder(frozenset({"first"}), frozenset({"second"}))]
    assert found.planned.answer is first.answer
    assert effort.cuts == (Cut(LATE_JOBS, "work"),)


def test_the_same_request_gives_the_same_bytes() -> None:
    jobs = [allowed(name, deadline="+2h", priority=number) for number, name in enumerate("abc")]
    request = a_request([*jobs, a_job("d", deadline="+4h")], [ONE, NORTH_SPOT], horizon=8 * HOUR)
    assert plan_to_json(make_plan(request)) == plan_to_json(make_plan(replace(request, jobs=request.jobs[::-1])))


def test_the_plan_survives_its_json_form() -> None:
    plan = checked([allowed(deadline="+2h"), a_job("b")], [NORTH, ALPS, NORTH_SPOT])
    assert plan_from_json(plan_to_json(plan)) == plan
    first, second = plan_content(plan)["jobs"]
    assert set(first["late"]) == {"by_hours", "planned_deadline", "why"}
    assert "late" not in second


def test_a_late_job_keeps_its_place_of_the_plan_before() -> None:
    jobs = [allowed(deadline="+2h"), a_job("b", deadline="+4h")]
    before = checked(jobs, [ONE])
    again = checked(jobs, [ONE], previous=before)
    assert (again.lines, late_of(again)) == (before.lines, late_of(before))
    assert late_of(before)["a"].planned_deadline == NOW + 8 * HOUR


def test_jobs_without_the_field_keep_their_digest_and_others_do_not() -> None:
    job = a_job(deadline="+2h")
    assert job.digest == job.model_copy(update={"late": "never"}).digest
    assert job.digest != job.model_copy(update={"late": "allowed"}).digest


def test_the_plan_names_the_job_as_its_file_has_it() -> None:
    job = allowed(deadline="+2h")
    assert checked([job], [NORTH]).jobs[0].job_digest == job.digest


def test_late_without_a_deadline_is_refused() -> None:
    with pytest.raises(ValidationError, match="no deadline is given to be late for"):
        allowed()
