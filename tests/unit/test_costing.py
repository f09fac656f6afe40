"""Exact money: lines to the nano-dollar, a month's egress shared by its movers, ceilings of what may be paid."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from router.jobs.spec import Job
from router.planning.document.costing import amortised_per_step, job_cost, lines_of, moves_of, per_step, price_ceiling
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun, SlotHold, runs_of
from router.planning.program.left_shift import earliest_run
from tests.support.made_up_jobs import simple_job
from tests.support.scenes import HOUR, LAKE, NORTH, NORTH_SPOT, NOW, SOUTH, a_job, a_request, problem_of

DATA: dict[str, Any] = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 200}


def whole_run(problem: PlacementProblem, job: Job, key: str, after: int = 0) -> tuple[ScheduledRun, ...]:
    slots = problem.window(job)[after:]
    holds = earliest_run(problem, job, problem.candidate(job.name, key), {}, slots)
    assert holds is not None
    return runs_of(problem, job, holds)


def one(
    job: Job, *offers: Any, limits: Any = None, key: str | None = None
) -> tuple[PlacementProblem, tuple[ScheduledRun, ...]]:
    problem = problem_of(a_request([job], offers, limits))
    found = key or next(iter(sorted(c.key for c in problem.all_candidates[job.name])))
    return problem, whole_run(problem, job, found)


def test_a_line_costs_its_rate_over_its_billed_time() -> None:
    problem, runs = one(a_job(), NORTH)
    (line,) = lines_of(problem, runs)
    assert line.cost_usd == UsdPerHour.parse("60").over(runs[0].billed)
    assert line.hours == Fraction(runs[0].billed // timedelta(microseconds=1), 3_600_000_000)
    assert line.cost_usd.nanos == round(60 * 10**9 * line.hours)
    assert (line.kind, line.gang, line.startup, line.steps, line.share) == ("order", "a/1", True, 300, 1.0)
    assert line.usd_per_step == per_step(line.cost_usd, 300)
    assert (line.price_as_of, line.market, line.max_usd_per_hour) == ("2026-11-01", "on_demand", line.usd_per_hour)


def test_an_undated_price_says_so() -> None:
    problem, runs = one(a_job(), replace(NORTH, as_of=None))
    assert lines_of(problem, runs)[0].price_as_of == "undated"


def test_a_core_and_its_rest_are_two_lines_of_one_gang() -> None:
    job = simple_job("b", ("H100", 32), steps=300, steps_per_hour=100, on_demand_share=0.25)
    problem, runs = one(job, NORTH, NORTH_SPOT, key="aws/north-1/p9.48xlarge/spotx32+core")
    core, rest = lines_of(problem, runs)
    assert (core.gang, core.start, core.end, core.hours) == (rest.gang, rest.start, rest.end, rest.hours)
    assert [(x.market, x.machines, x.accelerators, x.steps) for x in (core, rest)] == [
        ("on_demand", 1, 8, 300),
        ("spot", 3, 24, 0),
    ]
    assert (core.usd_per_hour, rest.usd_per_hour) == (UsdPerHour.parse("60"), UsdPerHour.parse("72"))
    # A step costs both: each line carries its part.
    assert rest.usd_per_step == per_step(rest.cost_usd, 300)


def test_spot_may_rise_to_the_on_demand_price_there_or_by_a_quarter() -> None:
    for others, most in (((NORTH,), "60"), ((SOUTH,), "30")):
        problem, runs = one(a_job(), NORTH_SPOT, *others, key="aws/north-1/p9.48xlarge/spotx8")
        assert price_ceiling(problem, runs[0].candidate.parts[0]) == UsdPerHour.parse(most)


def test_a_reservation_is_free_at_the_margin_and_dear_by_the_step() -> None:
    paid = {
        "name": "paid",
        "cloud": "aws",
        "region": "north-1",
        "instance_type": "p9.48xlarge",
        "machines": 1,
        "usd_per_hour": "30",
    }
    problem, runs = one(a_job(), NORTH, limits={"reservations": [paid]}, key="aws/north-1/p9.48xlarge/reserved(paid)x8")
    (line,) = lines_of(problem, runs)
    assert (line.cost_usd, line.usd_per_hour) == (Usd(0), UsdPerHour(0))
    assert line.usd_per_step == per_step(UsdPerHour.parse("30").over(runs[0].billed), 300)
    assert amortised_per_step(runs, ()) == line.usd_per_step


def test_per_step_of_no_steps_is_nothing() -> None:
    assert per_step(Usd.parse("1"), 0) is None
    assert per_step(Usd.parse("1"), 3) == Usd(333_333_333)


def test_moves_of_one_month_go_through_the_tiers_together_and_add_up() -> None:
    """200 and 400 GiB out of aws/north-1: 100 GB free, up to 400 GB at $0.09, the rest at $0.05."""
    jobs = [a_job("a", data=DATA), a_job("b", data={**DATA, "gib": 400})]
    problem = problem_of(a_request(jobs, [LAKE]))
    key = "gcp/lake-1/a9-highgpu-8g/on_demandx8"
    runs = {job.name: whole_run(problem, job, key) for job in problem.jobs}
    moves = moves_of(problem, runs)
    assert [(m.job, m.what, m.source, m.to, m.gib, m.month) for m in moves] == [
        ("a", "data", "aws/north-1", "gcp/lake-1", 200, "2026-11"),
        ("b", "data", "aws/north-1", "gcp/lake-1", 400, "2026-11"),
    ]
    gb = Fraction(600 * 2**30, 10**9)
    bill = 300 * Fraction("0.09") + (gb - 400) * Fraction("0.05")
    assert Usd.total(m.cost_usd for m in moves).nanos == round(bill * 10**9)
    assert moves[1].cost_usd.nanos == pytest.approx(2 * moves[0].cost_usd.nanos, abs=1)
    assert (
        job_cost(lines_of(problem, runs["a"]), moves, "a")
        == lines_of(problem, runs["a"])[0].cost_usd + moves[0].cost_usd
    )


def test_what_was_moved_this_month_is_counted_and_next_month_is_not() -> None:
    job = a_job(data=DATA, earliest_start="+20h", max_wait="1h")
    for now, cost in (
        (NOW, Fraction(200 * 2**30, 10**9) * Fraction("0.05")),  # 500 GB are behind us
        (datetime(2026, 11, 30, 18, tzinfo=UTC), (Fraction(200 * 2**30, 10**9) - 100) * Fraction("0.09")),
    ):
        problem = problem_of(a_request([job], [LAKE], {"egress_month_to_date_gb": {"aws": 500}}, now=now))
        runs = whole_run(problem, job, "gcp/lake-1/a9-highgpu-8g/on_demandx8")
        (move,) = moves_of(problem, {"a": runs})
        assert (move.month, move.cost_usd.nanos) == ((now + 20 * HOUR).strftime("%Y-%m"), round(cost * 10**9))


def test_data_move_once_into_a_region_and_the_checkpoint_goes_along() -> None:
    job = a_job(steps=700, data=DATA, regions=2)
    problem = problem_of(a_request([job], [NORTH, SOUTH]))
    north, south = "aws/north-1/p9.48xlarge/on_demandx8", "aws/south-1/p9.48xlarge/on_demandx8"
    holds = [
        SlotHold(problem.slots[i], key, 1.0)
        for i, key in enumerate([south, south, north, north, south, south, south, south])
    ]
    moves = moves_of(problem, {"a": runs_of(problem, job, holds)})
    assert [(m.what, m.source, m.to) for m in moves] == [
        ("data", "aws/north-1", "aws/south-1"),
        ("checkpoint", "aws/south-1", "aws/north-1"),
        ("checkpoint", "aws/north-1", "aws/south-1"),
    ]
    assert moves[1].cost_usd == Usd(round(Fraction(10 * 2**30, 10**9) * Fraction("0.01") * 10**9))
    assert moves[2].cost_usd == Usd(round(Fraction(10 * 2**30, 10**9) * Fraction("0.02") * 10**9))
