"""Predicted beside measured figures: a night with a known error, through release, ledger and command."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from router.cli.console import ExitCode
from router.controller.plans import Order
from router.controller.workspace.placement_options import GangPlacement
from router.planning.document.plan import LineFallback
from router.showback.plan_accuracy import StepFigures, compare, predict, sum_accuracy
from tests.support.command import run
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, Life, Place, planned, seat_of, stage
from tests.support.scenes import NORTH_SPOT, a_job, plan_of

EVENING = datetime(2026, 11, 20, 18, tzinfo=UTC)
NEXT_DAY = ("--now", "2026-11-21T18:00Z")
HERE = Place("aws", "north-1", "", "p9.48xlarge", Market.SPOT, "20", "60")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A night of two jobs, each planned 4 hours at 1000 steps an hour for 80 dollars; the second is twice as slow.

    The first is done in 4 hours, one of start-up besides: 100 dollars. The second is interrupted after 3 hours of which
    2 were training, loses an hour, and needs 7 more with start-up: 200 dollars. The stage makes each attempt an order
    of its own, so that the start-up between them is in no hours of training.
    """
    folder = tmp_path / "home"
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    jobs = [simple_job(name, ("H100", 8), steps=4000, steps_per_hour=1000) for name in ("good", "slow")]
    with stage(folder, EVENING) as playing:
        plan = playing.accept(EVENING, jobs, [planned(job, HERE, EVENING, 4, steps=4000) for job in jobs])
        good, slow = jobs
        met, done = EVENING + HOUR, EVENING + 5 * HOUR
        playing.run(plan, good, HERE, Life(made=EVENING, met=met, ended=done, gone=done, step=4000, saved=4000))
        lost = EVENING + 3 * HOUR
        half = Life(made=EVENING, met=met, ended=lost, gone=lost, step=1000, saved=500, reason="interrupted")
        playing.run(plan, slow, HERE, half)
        last = lost + 7 * HOUR
        rest = Life(made=lost, met=lost + HOUR, ended=last, gone=last, first=500, step=4000, saved=4000)
        playing.run(plan, slow, HERE, rest)
    return folder


def asked(*words: object) -> list[dict[str, Any]]:
    done = run("showback", "accuracy", *words, "-o", "json")
    assert done.exit_code == ExitCode.OK, done.stderr
    return list(json.loads(done.stdout)["accuracy"])


def test_each_job_has_its_error_and_the_sum_has_both(home: Path) -> None:
    good, slow, both = asked(*NEXT_DAY)
    assert (good["job"], slow["job"], both["job"]) == ("good", "slow", "all jobs")
    assert [row["predicted_steps_per_hour"] for row in (good, slow)] == [1000, 1000]
    per_step = ("steps", "predicted_steps_per_hour", "steps_per_hour", "predicted_usd_per_step", "usd_per_step")
    assert [both[name] for name in per_step] == [None] * 5  # steps of different jobs
    assert both["speed_error"] == pytest.approx(8 / 12 - 1, abs=1e-6)
    assert [row["hours"] for row in (good, slow, both)] == [4, 8, 12]
    assert [row["usd"] for row in (good, slow, both)] == [100, 200, 300]
    assert [row["cost_error"] for row in (good, slow, both)] == [0.25, 1.5, 0.875]
    assert [row["speed_error"] for row in (good, slow)] == [0, -0.5]
    assert [row["interruptions"] for row in (good, slow, both)] == [0, 1, 1]
    assert both["predicted_interruptions"] is None
    table = run("showback", "accuracy", *NEXT_DAY)
    assert table.exit_code == ExitCode.OK
    assert "+25.0%" in table.stdout
    assert max(len(line) for line in table.stdout.splitlines()) <= 80


def test_orders_of_another_night_are_left_out(home: Path) -> None:
    assert asked("--now", "2026-11-23T18:00Z") == []
    assert len(asked("--now", "2026-11-23T18:00Z", "--last", "3d")) == 3
    assert asked("--now", "2026-11-21T00:00Z")[-1]["plans"] == 1
    empty = run("showback", "accuracy", "--now", "2026-11-23T18:00Z")
    assert "no order ended within 1d" in empty.stdout
    assert run("showback", "accuracy", "--last", "soon").exit_code == ExitCode.INVALID_INPUT


def test_orders_that_cannot_be_compared_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gangs ended whose commands report no steps."""
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    jobs = [simple_job(name, ("H100", 8), steps=4000, steps_per_hour=1000) for name in ("one", "two")]
    with stage(tmp_path / "home", EVENING) as playing:
        plan = playing.accept(EVENING, jobs, [planned(job, HERE, EVENING, 4, steps=4000) for job in jobs])
        for job in jobs:
            gone = EVENING + 4 * HOUR
            playing.run(plan, job, HERE, Life(made=EVENING, met=EVENING + HOUR, ended=gone, gone=gone))
    told = run("showback", "accuracy", *NEXT_DAY).stdout
    assert told == "no order that ended within 1d can be compared: 2 reported no steps\n"
    quiet = run("showback", "accuracy", *NEXT_DAY, "-o", "json")
    assert json.loads(quiet.stdout)["accuracy"] == []
    assert "not compared: 2 reported no steps" in quiet.stderr


def test_waits_for_machines_are_in_no_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 2 hours of work, an interruption, 3 hours without machines, a start of 1 hour, and 1 of work."""
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    job = simple_job("train", ("H100", 8), steps=4000, steps_per_hour=1000)
    with stage(tmp_path / "home", EVENING) as playing:
        line = replace(planned(job, HERE, EVENING, 8, steps=4000), steps_per_hour=500.0, billed_share=0.75)
        plan = playing.accept(EVENING, [job], [line])
        order = Order(job.name, line.gang, line.start, line.end, ())
        choice = GangPlacement(0, HERE.cloud, HERE.region, (seat_of(HERE),), order.start, order.end)
        lives = (
            Life(
                made=EVENING,
                met=EVENING + HOUR,
                ended=(lost := EVENING + 3 * HOUR),
                gone=lost,
                step=2000,
                saved=2000,
                reason="interrupted",
            ),
            Life(
                made=lost + 3 * HOUR,
                met=lost + 4 * HOUR,
                ended=(end := lost + 5 * HOUR),
                gone=end,
                first=2000,
                step=4000,
                saved=4000,
            ),
        )
        for life in lives:
            playing.live(plan, job, order, choice, life)
    (row, _) = asked(*NEXT_DAY)
    assert (row["steps"], row["predicted_hours"], row["hours"]) == (4000, 6, 4)
    assert row["predicted_steps_per_hour"] == pytest.approx(4000 / 6)


def test_hours_of_a_fallback_are_predicted() -> None:
    plan = plan_of([a_job(steps=600)], [NORTH_SPOT])
    found = predict(plan, "a")
    assert found is not None
    (line,) = [each for each in plan.lines if each.steps]
    rate = UsdPerHour.parse("60")
    behind = LineFallback(
        *("aws", "north-1", None, "p9.48xlarge", "on_demand", 1, "H100", 8), rate, rate, Fraction(3),
        rate.over(3 * HOUR),
        probability=0.3, refusal_probability=0.0, reserved=True,
    )  # fmt: skip
    guarded = predict(replace(plan, lines=(replace(line, fallback=behind),)), "a")
    assert guarded is not None
    assert guarded.hours == pytest.approx(line.steps / line.steps_per_hour * line.billed_share + 3)


def test_predicted_interruptions_follow_from_restarts() -> None:
    """A rate of .05 an hour for about 6 hours of run time is about .3 interruptions."""
    plan = plan_of([a_job(steps=600)], [replace(NORTH_SPOT, interruptions_per_hour=0.05)])
    found = predict(plan, "a")
    assert found is not None
    assert found.interruptions == pytest.approx(0.05 * found.hours, rel=0.05)
    assert found.usd == pytest.approx(plan.cost_usd.dollars())
    assert predict(plan, "b") is None


def test_figures_are_for_the_steps_that_were_saved() -> None:
    half = compare("a", StepFigures(100, 10, 50, 2), StepFigures(50, 6, 20, 3))
    assert half is not None
    assert half.predicted == StepFigures(50, 5, 25, 1)
    assert half.speed_error == pytest.approx(-1 / 6)
    assert half.cost_error == pytest.approx(-0.2)
    for nothing in (StepFigures(0, 6, 20, 3), StepFigures(50, 0, 20, 3)):
        assert compare("a", StepFigures(100, 10, 50, 2), nothing) is None
    one, both = sum_accuracy([half, half])
    assert (one.plans, one.steps, both.measured.usd, both.measured.interruptions) == (2, 100, 40, 6)
    assert sum_accuracy([]) == ()
    assert timedelta(hours=half.measured.hours) == 6 * HOUR
