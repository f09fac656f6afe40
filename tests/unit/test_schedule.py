"""Runs from what is held: steps, start-ups and times add up, and what is not needed is given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from router.planning.find.candidate import Candidate
from router.planning.planner import make_plan
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun, SlotHold, runs_of, starts_of
from router.planning.program.formulation import holdings_of
from router.planning.rules.program import ProgramLayout
from tests.support.checker import check_plan
from tests.support.scenes import HOUR, NORTH, NOW, RUNNING_IN_NORTH, SOUTH, a_job, a_request, problem_of

HERE = "aws/north-1/p9.48xlarge/on_demandx8"
THERE = "aws/south-1/p9.48xlarge/on_demandx8"
NOTHING = timedelta(0)
RUNS = {"steps_done": 100, "running": RUNNING_IN_NORTH}


def problem(**more: Any) -> PlacementProblem:
    return problem_of(a_request([a_job(**more)], [NORTH, SOUTH]))


def hold(at: PlacementProblem, indices: Sequence[int], key: str = HERE, share: float = 1.0) -> list[SlotHold]:
    return [SlotHold(at.slots[i], key, share) for i in indices]


def runs(at: PlacementProblem, *holds: list[SlotHold]) -> tuple[ScheduledRun, ...]:
    return runs_of(at, at.jobs[0], [h for some in holds for h in some])


def candidate(at: PlacementProblem, key: str = HERE) -> Candidate:
    return at.candidate("a", key)


def test_one_run_starts_up_works_and_ends_when_its_steps_are_done() -> None:
    at = problem()
    (run,) = runs(at, hold(at, [0, 1, 2, 3]))
    g = candidate(at).on_time_steps_per_hour
    assert (run.start, run.startups, run.steps, run.order, run.share) == (NOW, 1, 300, True, 1.0)
    assert run.productive / HOUR == pytest.approx(300 / g, abs=1e-9)
    assert run.end == NOW + timedelta(minutes=12) + run.productive
    assert NOW + 3 * HOUR < run.end < NOW + 4 * HOUR


def test_hours_that_are_not_needed_are_given_back_from_the_end() -> None:
    at = problem()
    exact, more = runs(at, hold(at, [0, 1, 2, 3])), runs(at, hold(at, [0, 1, 2, 3, 4, 5, 6]))
    assert exact == more


def test_a_break_costs_another_start_up() -> None:
    at = problem()
    first, second = runs(at, hold(at, [0, 1]), hold(at, [4, 5]))
    assert (first.startups, second.startups) == (1, 1)
    assert (first.start, second.start) == (NOW, NOW + 4 * HOUR)
    assert first.end == NOW + 2 * HOUR
    assert first.steps + second.steps == 300
    assert starts_of((first, second)) == 2


def test_another_candidate_is_another_run_and_the_cheaper_step_is_filled_first() -> None:
    at = problem()
    dear, cheap = runs(at, hold(at, [0, 1]), hold(at, [2, 3, 4], THERE))
    assert (dear.candidate.key, cheap.candidate.key) == (HERE, THERE)
    assert cheap.end == NOW + 5 * HOUR
    assert cheap.productive == timedelta(hours=2, minutes=48)
    assert dear.end < NOW + HOUR


def test_a_job_goes_on_where_it_runs_without_starting_up() -> None:
    at = problem(status=RUNS)
    (stays,) = runs(at, hold(at, [0, 1, 2]))
    assert (stays.startups, stays.steps, stays.start) == (0, 200, NOW)
    (late,) = runs(at, hold(at, [1, 2, 3]))
    assert (late.startups, late.steps) == (1, 200)


def test_a_job_that_cannot_resume_begins_again_elsewhere() -> None:
    at = problem(status=RUNS, checkpoint=None)
    (stays,) = runs(at, hold(at, [0, 1, 2]))
    (leaves,) = runs(at, hold(at, [0, 1, 2, 3], THERE))
    assert (stays.steps, leaves.steps) == (200, 300)


def test_beyond_the_horizon_a_share_of_the_time_is_held() -> None:
    at = problem(steps=3000)
    outlook = [s.index for s in at.slots if not s.order][:12]
    orders = [s.index for s in at.slots if s.order]
    first, second = runs(at, hold(at, orders), hold(at, outlook, share=0.5))
    assert (first.order, second.order) == (True, False)
    assert first.end == at.slots[orders[-1]].end
    assert second.startups == 0.0  # it goes on from the horizon; its share does not rise
    assert 0 < second.share <= 0.5
    assert second.share * ((second.end - second.start) / HOUR) == pytest.approx(second.productive / HOUR)
    assert first.steps + second.steps == 3000


def test_a_small_share_before_a_larger_one_works_too_and_is_not_all_start_up() -> None:
    at = problem()
    first, second = [s for s in at.slots if not s.order][:2]
    whole = 300 / candidate(at).on_time_steps_per_hour + 0.2
    share = (whole - 0.02 * first.hours) / second.hours
    found = runs(at, hold(at, [first.index], share=0.02), hold(at, [second.index], share=share))
    assert sum(run.steps for run in found) == 300
    assert starts_of(found) == pytest.approx(1)
    for run, held in zip(found, (0.02 * first.hours, share * second.hours), strict=True):
        assert run.productive / HOUR + 0.2 * run.startups <= held + 1e-9


def test_a_start_up_that_is_longer_than_what_is_left_of_the_horizon_goes_on_after_it() -> None:
    at = problem(startup_minutes=90)
    outlook = [s.index for s in at.slots if not s.order][:2]
    start, work = runs(at, hold(at, [7, *outlook]))
    assert (start.order, start.productive, start.steps) == (True, NOTHING, 0)
    assert (start.startups, work.startups) == pytest.approx((1 / 1.5, 0.5 / 1.5))
    assert start.end == work.start == NOW + 8 * HOUR
    assert work.steps == 300


@pytest.mark.parametrize("compact_jobs", [0, 30])
def test_the_checker_wants_the_rest_of_such_a_start_up_paid(compact_jobs: int) -> None:
    job = a_job(startup_minutes=90, steps=1200, earliest_start="+7h", deadline="+21h")
    request = a_request([job], [NORTH], compact_jobs=compact_jobs)
    plan = make_plan(request)
    order, outlook, *rest = plan.lines
    assert (order.kind, order.steps, outlook.kind) == ("order", 0, "outlook")
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
    unpaid = replace(plan, lines=(order, replace(outlook, hours=outlook.hours - Fraction(1, 3)), *rest))
    found = check_plan(unpaid, request.jobs, request.book, request.limits, slot=request.slot)
    assert any("of its start-up are left" in words for words in found)


def test_billed_time_is_in_whole_microseconds_and_below_what_is_reserved() -> None:
    at = problem(relative_error=0.1, deadline="+8h")
    (run,) = runs(at, hold(at, [0, 1, 2, 3, 4]))
    assert run.billed < run.end - run.start
    kappa = candidate(at).billed_per_reserved
    assert run.billed / HOUR == pytest.approx(0.2 + run.productive / HOUR * kappa, abs=1e-9)


def test_holding_too_little_is_a_bug_and_said_so() -> None:
    at = problem()
    with pytest.raises(RuntimeError, match="steps are not carried"):
        runs(at, hold(at, [0, 1]))


def test_holdings_are_read_off_the_values() -> None:
    at = problem()
    layout = ProgramLayout(x={("a", HERE, 0): 0, ("a", HERE, 1): 1, ("a", THERE, 1): 2}, u={"a": 3})
    assert holdings_of(at, layout, [1 - 1e-9, 0.999999, 1e-9, 0.0]) == {"a": tuple(hold(at, [0, 1]))}
    assert holdings_of(at, layout, [1, 1, 0, 1]) == {}
