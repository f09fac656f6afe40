"""People list, show and forget the measurements of earlier runs; plans and quotes use them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from router.app.plan_rerun import PlanFiles, rebuild_request
from router.cli.console import ExitCode
from router.config.job_files import load_jobs
from router.config.plan_files import read_plan
from router.jobs.job_json import job_json
from router.planning.planner import make_plan
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.command import run, write_job
from tests.support.new_state import open_state
from tests.support.state_values import attempt, node

# Without --now a plan is for the present, and learns from what is not too old then.
RAN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
NOW = (RAN + timedelta(days=1)).isoformat()
POOL = "aws/us-east-1a/p5.48xlarge/spot"
HERE = "residency: {allow: [aws/us-east-1]}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    folder.mkdir()
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job that states 900 steps an hour on eight H100, and that it is hardly interrupted: its pace is its speed."""
    return write_job(tmp_path / "jobs", "llama", steps=5000, more=HERE + "interruptions: {per_hour: 0.01}\n")


def opened(home: Path) -> StateStore:
    return open_state(home / "state.db", RAN)


def ran(home: Path, file: Path, name: str = "llama-1", seconds: float = 8.0) -> None:
    """Four hours of the job on one machine, at 450 steps an hour, then an interruption."""
    (job,) = load_jobs([str(file)], RAN).jobs
    times: dict[str, Any] = {"made_at": RAN - timedelta(hours=4), "gone_at": RAN}
    with opened(home) as store:
        store.plans.put_jobs({job.digest: job_json(job)}, RAN)
        store.attempts.add(
            attempt(
                name, job="llama", job_digest=job.digest, machines=1, met_at=times["made_at"],
                phase=Phase.FAILED, reason="interrupted", **times,
            ),
            [node(name, zone="us-east-1a", heard_at=RAN, step=int(4 * 3600 / seconds), step_seconds=seconds, **times)],
        )  # fmt: skip


def plan(job: Path, *words: object) -> tuple[Any, str]:
    done = run("plan", job, "--book", "embedded", "-o", "json", *words)
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_plan_learns_by_itself_unless_it_is_for_another_moment(home: Path, job: Path, tmp_path: Path) -> None:
    before, told = plan(job, "--now", NOW)
    assert "learned" not in before
    ran(home, job)
    assert plan(job, "--now", NOW)[0]["plan_id"] == before["plan_id"]
    out = tmp_path / "plan.json"
    learned, told = plan(job, "--out", out)
    assert f"speeds of 1 job measured on 1 earlier run, last {RAN:%Y-%m-%d}; interruptions counted on 1 gang" in told
    assert learned["lines"][0]["steps_per_hour"] < 0.6 * before["lines"][0]["steps_per_hour"]
    assert [(row["job"], row["attempts"]) for row in learned["learned"]["speeds"]] == [("llama", ["llama-1"])]
    shown = run("explain", out, "llama")
    assert f"speed on 8 H100 measured on 1 earlier run, last {RAN:%Y-%m-%d}: 450" in " ".join(shown.stdout.split())
    checked = run("plan", "check", out, "--book", "embedded")
    assert checked.exit_code == ExitCode.OK, checked.stdout + checked.stderr


def test_the_plan_is_made_again_with_what_it_learned_whatever_is_known_since(
    home: Path, job: Path, tmp_path: Path
) -> None:
    ran(home, job)
    out = tmp_path / "plan.json"
    learned, _ = plan(job, "--out", out)
    ran(home, job, "llama-2", 4.0)
    stored = read_plan(out)
    files = PlanFiles((str(job),), "embedded", None)
    request, _ = rebuild_request(stored, files, timedelta(hours=1), timedelta(minutes=3))
    again = make_plan(request)
    assert again.learned == stored.learned
    assert str(again.cost_usd) == learned["cost_usd"]


def test_runs_in_a_file_give_the_same_plan_as_the_state(home: Path, job: Path, tmp_path: Path) -> None:
    ran(home, job)
    runs = tmp_path / "runs.json"
    assert run("profile", "list", "--book", "embedded", "--out", runs).exit_code == ExitCode.OK
    by_state, _ = plan(job, "--now", NOW, "--learned", "latest")
    by_file, _ = plan(job, "--now", NOW, "--learned", runs)
    assert by_file == by_state
    runs.write_text("{}", encoding="utf-8")
    refused = run("plan", job, "--book", "embedded", "--now", NOW, "--learned", runs)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    assert "holds no runs" in refused.stderr


@pytest.mark.slow
def test_a_quote_learns_too(home: Path, job: Path) -> None:
    def cost(*words: object) -> float:
        done = run("quote", job, "--by", "+36h", "--book", "embedded", "--no-keep", "-o", "json", *words)
        assert done.exit_code == ExitCode.OK, done.stderr
        return float(json.loads(done.stdout)["quotes"][0]["usd"]["mean"])

    ran(home, job)
    assert cost() > 1.5 * cost("--learned", "none")


def test_runs_are_listed_shown_forgotten_and_recalled(home: Path, job: Path) -> None:
    ran(home, job)
    ran(home, job, "llama-2", 9.0)

    def said(*words: object) -> str:
        done = run("profile", *words, "--book", "embedded")
        assert done.exit_code == ExitCode.OK, done.stderr
        return done.stdout + done.stderr

    listed = said("list")
    assert "400 to 450 steps/h on 8 H100" in listed
    assert "2 interruptions in 8.0 h" in listed
    (row, pool) = json.loads(said("list", "-o", "json"))["learned"]
    assert (row["what"], row["runs"], row["last"], pool["what"]) == ("llama", 2, f"{RAN:%Y-%m-%d}", POOL)
    assert "llama-2" in said("show", "llama")
    assert said("show", POOL, "-o", "csv").splitlines()[1].startswith(f"llama-1,1,4.00,yes,{RAN:%Y-%m-%d}")
    assert "are ignored: 1" in said("forget", "llama-2")
    assert "llama-2" not in said("show", "llama")
    said("forget", "llama")
    gone = said("list")
    assert "450" not in gone
    assert "runs of llama up to " in gone
    said("forget", "llama", "--undo")
    said("forget", "llama-2", "--undo")
    assert said("list") == listed
    with opened(home) as store:
        audited = [(entry.what, entry.details["name"]) for entry in store.audit.entries()]
    assert audited == [
        ("runs forgotten", "llama-2"),
        ("runs forgotten", "llama"),
        ("runs recalled", "llama"),
        ("runs recalled", "llama-2"),
    ]


def test_names_that_are_not_known_are_refused(home: Path, job: Path) -> None:
    assert "nothing was measured yet" in run("profile", "list", "--book", "embedded").stdout
    ran(home, job)
    for word in ("show", "forget"):
        refused = run("profile", word, "lama", "--book", "embedded")
        assert refused.exit_code == ExitCode.INVALID_INPUT
        assert "did you mean llama?" in refused.stderr
    refused = run("profile", "forget", "llama", "--undo", "--book", "embedded")
    assert refused.exit_code == ExitCode.FAILURE
    assert "are not ignored" in refused.stderr
