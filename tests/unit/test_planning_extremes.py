"""Extremes of planning: no time, no room, figures of any size, solvers that fail. A plan and a bound, no traceback."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import highspy
import pytest

from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from router.planning.program.effort import Clock
from router.prices.books import load_book
from router.render.plan_text import table
from tests.bench.nights import mid_size_request, realistic_night
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.plan_agreement import compare_planners, value_of
from tests.support.scenes import NORTH, SOUTH, a_job, a_request

LEAST_USD, MOST_USD = 0.01, 100_000.0
LEAST_STEPS, MOST_STEPS = 1, 10**9
_PLACES = (
    ("aws/north-1", "p9.48xlarge"),
    ("aws/south-1", "p9.48xlarge"),
    ("aws/alps-1", "p9.48xlarge"),
    ("gcp/lake-1", "a9-highgpu-8g"),
    ("azure/fjord-1", "ND96_h9"),
)


def extreme_request(seed: int) -> PlanRequest:
    """Return 4 to 7 jobs with near deadlines over few machines, so that dear ones are needed beside the cheap ones."""
    draw = Random(f"extreme {seed}")
    offers = [o for number, place in enumerate(_PLACES) for o in _offers(draw, number, *place)]
    jobs = [_job(draw, number) for number in range(draw.randint(4, 7))]
    limits = {"teams": [{"team": "red", "budget": "250000"}]} if draw.random() < 0.3 else {}
    return a_request(jobs, offers, limits, gap=0.01, resolve_limits=0, confidence_rounds=0)


def _offers(draw: Random, number: int, place: str, machine: str) -> list[Offer]:
    usd = (LEAST_USD, MOST_USD)[number] if number < 2 else 10 ** draw.uniform(-2, 5)
    found = [offer(place, machine, "on_demand", f"{usd:.2f}", cap=draw.choice((1, 2)))]
    if draw.random() < 0.5:
        cheaper = f"{max(LEAST_USD, 0.4 * usd):.2f}"
        found.append(offer(place, machine, "spot", cheaper, cap=1, interruptions=draw.choice((0.01, 0.3))))
    return found


def _job(draw: Random, number: int) -> Job:
    steps = (LEAST_STEPS, MOST_STEPS)[number] if number < 2 else round(10 ** draw.uniform(0, 9))
    hours = draw.uniform(1, 4)
    more: dict[str, Any] = {"startup_minutes": draw.choice((0, 10)), "priority": draw.choice((-1, 0, 0, 1))}
    if draw.random() < 0.9:
        more["deadline"] = f"+{int(hours * 1.35) + 1}h"
    if draw.random() < 0.8:
        more["checkpoint"] = {"size_gib": 10}
    if draw.random() < 0.2:
        more["min_saving"] = draw.choice(("0.01", "50000"))
    if draw.random() < 0.2:
        more["budget"] = f"{10 ** draw.uniform(-1, 5):.2f}"
    per_hour = max(0.01, round(steps / hours, 2))
    return simple_job(f"j{number}", ("H100", 8), steps=steps, steps_per_hour=per_hour, **more)


NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
COLUMNS, COMPACT = 0, 1000  # jobs up to which the compact program plans
PLANNERS = pytest.mark.parametrize("compact_jobs", [COLUMNS, COMPACT])
NIGHT = 18


def sound(request: PlanRequest, clock: Clock = time.monotonic) -> Plan:
    """The plan, which the checker accepts and whose bound is below its cost."""
    plan = make_plan(request, clock=clock)
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
    assert plan.bound_usd.dollars() <= value_of(plan)
    return plan


@PLANNERS
def test_a_millisecond_is_enough_for_a_plan_and_a_bound(compact_jobs: int) -> None:
    night = replace(mid_size_request(NIGHT), time_limit=timedelta(milliseconds=1), compact_jobs=compact_jobs)
    plan = sound(night)
    assert plan.status == "feasible"
    assert plan.time_limit_hit
    assert plan.lines
    assert plan.bound_usd.nanos > 0


@PLANNERS
@pytest.mark.slow
def test_two_seconds_are_enough_for_sixty_jobs(compact_jobs: int) -> None:
    night = realistic_night(60, 1, NOW)
    limit = timedelta(seconds=2)
    request = PlanRequest(night.jobs, load_book("embedded"), night.limits, NOW, time_limit=limit)
    # The processor's time: beside other tests two seconds are less.
    plan = sound(replace(request, compact_jobs=compact_jobs), clock=time.process_time)
    assert plan.time_limit_hit
    assert len(plan.unplaced) <= 9  # an hour leaves out as many: six find no offer in time, alone either
    assert plan.bound_usd.nanos > 0


@PLANNERS
@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({"steps": 10**6, "deadline": "+5h"}, {}),
        ({"spot": "only"}, {}),
        ({}, {"teams": [{"team": "red", "budget": "1"}]}),
        ({"budget": "0.01"}, {}),
    ],
)
def test_a_night_on_which_no_job_fits_is_infeasible_and_says_why(
    compact_jobs: int, fields: dict[str, Any], limits: dict[str, Any]
) -> None:
    plan = sound(
        a_request([a_job(name, **fields) for name in "abcdef"], [NORTH, SOUTH], limits, compact_jobs=compact_jobs)
    )
    assert (plan.status, plan.stage_one_proven, plan.cost_usd.nanos, plan.lines) == ("infeasible", True, 0, ())
    assert [item.job for item in plan.unplaced] == list("abcdef")
    assert all(item.reason for item in plan.unplaced)


def contradictions_of_extremes(seeds: range) -> dict[int, tuple[str, ...]]:
    """Describe what is wrong with either plan of nights of extreme prices and steps, by seed."""
    return {seed: wrong for seed in seeds if (wrong := compare_planners(extreme_request(seed)).wrong)}


def test_prices_and_steps_of_any_size_give_sound_plans() -> None:
    assert contradictions_of_extremes(range(5, 7)) == {}


@pytest.mark.slow
def test_prices_and_steps_of_any_size_give_sound_plans_on_14_nights() -> None:
    assert contradictions_of_extremes(range(14)) == {}


def out_of_memory(_: Any) -> Any:
    raise MemoryError


def an_error(_: Any) -> Any:
    return highspy.HighsStatus.kError


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[Any], Any]], None]:
    """Let HiGHS fail from its n-th run on."""
    run = highspy.Highs.run

    def fail(first: int, how: Callable[[Any], Any]) -> None:
        runs = 0

        def instead(highs: Any) -> Any:
            nonlocal runs
            runs += 1
            return how(highs) if runs >= first else run(highs)

        monkeypatch.setattr(highspy.Highs, "run", instead)

    return fail


@PLANNERS
@pytest.mark.parametrize("how", [out_of_memory, an_error])
@pytest.mark.parametrize("first", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_where_highs_fails_there_are_a_plan_a_bound_and_the_name_of_the_phase(
    failing: Callable[[int, Callable[[Any], Any]], None], compact_jobs: int, how: Callable[[Any], Any], first: int
) -> None:
    failing(first, how)
    plan = sound(replace(mid_size_request(NIGHT), compact_jobs=compact_jobs, resolve_limits=2))
    assert plan.status in ("feasible", "optimal")
    assert not plan.time_limit_hit
    assert plan.lines
    assert plan.bound_usd.nanos > 0
    assert {cut.by for cut in plan.cuts} == {"failure"}
    assert "the solver failed in: " in " ".join(table(plan).split())


@PLANNERS
def test_a_cbc_that_is_killed_leaves_a_plan_and_a_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compact_jobs: int
) -> None:
    killed = tmp_path / "cbc"
    killed.write_text("#!/bin/sh\nkill -KILL $$\n", encoding="utf-8")
    killed.chmod(killed.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    # A night on which both planners need the solver for whole numbers.
    plan = sound(replace(mid_size_request(1), solver="coin_cmd", compact_jobs=compact_jobs))
    assert plan.status in ("feasible", "optimal")
    assert plan.lines
    assert "failure" in {cut.by for cut in plan.cuts}
    assert plan.bound_usd.dollars() > 0.5 * value_of(plan)
