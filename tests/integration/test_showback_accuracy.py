"""Predicted beside measured figures: a night with a known error, through release, ledger and command."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.places import Market
from router.cli.console import ExitCode
from router.showback.plan_accuracy import JobMeasurement, JobPrediction, compare, predict, sum_accuracy
from tests.support.command import run
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, Life, Place, planned, stage
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
    assert [row["predicted_steps_per_hour"] for row in (good, slow, both)] == [1000, 1000, 1000]
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


def test_predicted_interruptions_follow_from_restarts() -> None:
    """A rate of .05 an hour for about 6 hours of run time is about .3 interruptions."""
    plan = plan_of([a_job(steps=600)], [replace(NORTH_SPOT, interruptions_per_hour=0.05)])
    found = predict(plan, "a")
    assert found is not None
    assert found.interruptions == pytest.approx(0.05 * found.hours, rel=0.05)
    assert found.usd == pytest.approx(plan.cost_usd.dollars())
    assert predict(plan, "b") is None


def test_figures_are_for_the_steps_that_were_saved() -> None:
    half = compare("a", JobPrediction(100, 10, 50, 2), JobMeasurement(50, 6, 20, 3))
    assert half is not None
    assert (half.predicted_hours, half.predicted_usd, half.predicted_interruptions) == (5, 25, 1)
    assert half.speed_error == pytest.approx(-1 / 6)
    assert half.cost_error == pytest.approx(-0.2)
    for nothing in (JobMeasurement(0, 6, 20, 3), JobMeasurement(50, 0, 20, 3)):
        assert compare("a", JobPrediction(100, 10, 50, 2), nothing) is None
    one, both = sum_accuracy([half, half])
    assert (one.plans, one.steps, both.usd, both.interruptions) == (2, 100, 40, 6)
    assert sum_accuracy([]) == ()
    assert timedelta(hours=half.hours) == 6 * HOUR
