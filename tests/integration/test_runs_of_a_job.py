"""A job that several plans ran in a month: each line of its report is of the run, or of the runs, that it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pricing.places import Market
from router.cli.console import ExitCode
from router.jobs.spec import Job
from tests.support.command import run
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, Life, Place, Stage, planned, stage

START = datetime(2026, 11, 10, tzinfo=UTC)
SPOT = Place("aws", "us-east-1", "us-east-1a", "p5", Market.SPOT, "10", "30")
Record = dict[str, Any]


@pytest.fixture
def playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    with stage(tmp_path / "home", START) as made:
        yield made


def job(name: str = "train") -> Job:
    """A job that is to be done within eight hours of its plan."""
    more = {"team": "speech", "deadline": "+8h", "run": {"command": "train"}}
    return simple_job(name, ("H100", 8), steps=1000, steps_per_hour=100, **more)


def accept(playing: Stage, begins: float, hours: int = 8, name: str = "train") -> str:
    begun = START + begins * HOUR
    return playing.accept(begun, [job(name)], [planned(job(name), SPOT, begun, hours, steps=1000)])


def live(playing: Stage, plan: str, begins: float, ends: float | None, reason: str = "finished") -> None:
    """Let a gang start for an hour, then train until it is gone, with all of its work saved; or still run."""
    begun, gone = START + begins * HOUR, None if ends is None else START + ends * HOUR
    life = Life(made=begun, met=begun + HOUR, gone=gone, ended=gone, reason=reason, step=500, saved=500)
    playing.run(plan, job(), SPOT, life)


def report(hour: float) -> dict[str, Any]:
    now = f"{START + hour * HOUR:%Y-%m-%dT%H:%MZ}"
    done = run("showback", "--month", "2026-11", "--now", now, "-o", "json")
    assert done.exit_code == ExitCode.OK, done.stderr
    return dict(json.loads(done.stdout)["sections"])


def due(hour: float) -> tuple[str | None, str | None, bool | None]:
    """Return deadline, end and whether it was met, as the one row of jobs has them."""
    (row,) = report(hour)["jobs"]["rows"]
    return row["deadline"], row["done_at"], row["deadline_met"]


@pytest.mark.slow
def test_a_row_of_jobs_is_about_the_last_run(playing: Stage) -> None:
    live(playing, accept(playing, 0), 0, 6)
    assert due(23) == ("2026-11-10T08:00:00Z", "2026-11-10T06:00:00Z", True)
    second = accept(playing, 24)
    live(playing, second, 24, 30, reason="interrupted")
    assert due(31) == ("2026-11-11T08:00:00Z", None, None)  # it waits, and may be in time
    assert due(33) == ("2026-11-11T08:00:00Z", None, False)
    live(playing, second, 31, None)
    assert due(31.5) == ("2026-11-11T08:00:00Z", None, None)  # it runs
    assert due(23) == ("2026-11-10T08:00:00Z", "2026-11-10T06:00:00Z", True)  # as of then


def test_earlier_runs_that_were_late_are_named(playing: Stage) -> None:
    live(playing, accept(playing, 0), 0, 10)
    assert due(11)[2] is False
    assert not any("Earlier runs" in note for note in report(11)["jobs"]["notes"])
    live(playing, accept(playing, 24), 24, 30)
    assert due(31)[2] is True
    late = "Earlier runs that were done after their deadlines: of train (1)."
    assert report(31)["jobs"]["notes"][-1] == late


def test_a_first_start_of_a_run_is_no_restart(playing: Stage) -> None:
    """Two runs of six hours at 30 on demand; of the second two gangs were there, the first of which was interrupted."""
    live(playing, accept(playing, 0), 0, 6)
    live(playing, second := accept(playing, 24), 24, 27, reason="interrupted")
    before = report(28)
    live(playing, second, 28, 31)
    after = report(32)
    for sections, on_demand, restarts in ((before, 270, 0), (after, 360, 30)):
        for rows in (sections["jobs"]["rows"], sections["unit_costs"]["rows"], sections["savings"]["rows"]):
            (row,) = rows
            assert [Decimal(row[name]) for name in ("on_demand", "restart_on_demand")] == [on_demand, restarts]
