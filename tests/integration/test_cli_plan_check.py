"""`stepfare plan check`: exit codes and words, with the same book, a dearer one, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pricing.book_file import write_book
from router.jobs.limits import Limits
from tests.support.command import NOW, plan, run, write_job
from tests.support.made_up_book import book, offer

PLACE = "aws/north-1"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    for name, spot, listed in (("then", "20", "40"), ("now", "39", "60"), ("dear", "41", "60")):
        offers = [offer(PLACE, "p9.48xlarge", "spot", spot), offer(PLACE, "p9.48xlarge", "on_demand", listed)]
        write_book(book(offers), folder / f"{name}.parquet")
    job = write_job(folder / "jobs", "one")
    done = plan(job, "--book", folder / "then.parquet", "--out", folder / "plan.json")
    assert done.exit_code == 0, done.stderr
    return folder


@pytest.mark.parametrize(("name", "code"), [("then", 0), ("now", 0), ("dear", 6)])
def test_the_ceiling_decides(planned: Path, name: str, code: int) -> None:
    done = run("plan", "check", planned / "plan.json", "--book", planned / f"{name}.parquet", "--now", NOW)
    assert done.exit_code == code, done.output
    assert ("above the plan's ceiling" in " ".join(done.stdout.split())) == (code == 6)
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_age_and_money(planned: Path) -> None:
    words = ("plan", "check", planned / "plan.json", "--book", planned / "then.parquet")
    assert run(*words, "--now", "2026-11-25T00:00Z").exit_code == 6
    assert run(*words, "--now", NOW, "--max-cost", "1").exit_code == 4
    assert run(*words, "--now", NOW, "--approve-above", "$1").exit_code == 4
    assert run(*words, "--now", NOW, "--approve-above", "$1", "--approved-by", "ada").exit_code == 0


def test_the_limits_are_those_of_the_plan(planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines of a reservation are in no price book: without its limits the plan would look as if they were gone."""
    limits = tmp_path / "limits.yaml"
    limits.write_text(
        "reservations:\n"
        "- {name: ours, cloud: aws, region: north-1, instance_type: p9.48xlarge, machines: 1, usd_per_hour: 9}\n"
    )
    job, file = write_job(tmp_path / "jobs", "one"), tmp_path / "plan.json"
    assert plan(job, "--book", planned / "then.parquet", "--limits", limits, "--out", file).exit_code == 0
    assert "reserved" in file.read_text()
    words = ("plan", "check", file, "--book", planned / "then.parquet", "--now", NOW)
    done = run(*words)
    assert (done.exit_code, "may be applied" in done.stdout) == (0, True), done.output
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "elsewhere"))
    refused = run(*words)
    assert refused.exit_code == 6
    assert "or name the plan's limits, which this state does not know, with --limits" in " ".join(
        refused.output.split()
    )
    assert run(*words, "--limits", limits).exit_code == 0


def test_a_plan_without_a_limits_file_needs_none(planned: Path, tmp_path: Path) -> None:
    """It was made with a hard budget of the state, which counts where no moment is stated."""
    assert run("budget", "set", "50000", "--team", "research", "--hard").exit_code == 0
    job, file = write_job(tmp_path / "jobs", "one"), tmp_path / "plan.json"
    try:
        assert run("plan", job, "--book", planned / "then.parquet", "--out", file).exit_code == 0
    finally:
        assert run("budget", "remove", "--team", "research").exit_code == 0
    assert json.loads(file.read_text())["inputs"]["limits_digest"] != Limits.none().digest
    done = run("plan", "check", file, "--book", planned / "then.parquet")
    assert (done.exit_code, "may be applied" in done.stdout) == (0, True), done.output


def test_json(planned: Path) -> None:
    done = run("plan", "check", planned / "plan.json", "--book", planned / "dear.parquet", "--now", NOW, "-o", "json")
    document = json.loads(done.stdout)
    assert [refusal["cause"] for refusal in document["refusals"]] == ["price above ceiling"]
    (price,) = document["prices"]
    assert (price["planned_usd_per_hour"], price["usd_per_hour"], price["max_usd_per_hour"]) == (
        "20.00",
        "41.00",
        "40.00",
    )


def test_a_late_job_is_placed_and_every_command_says_so(planned: Path, tmp_path: Path) -> None:
    """Its deadline has passed: exit code 0, and by how much it is late, wherever the plan is shown."""
    job = write_job(tmp_path, "one", deadline="2026-11-21T12:00Z", more="late: allowed\n")
    book_words = ("--book", planned / "then.parquet")
    page, file = tmp_path / "page.html", tmp_path / "plan.json"
    made = plan(job, *book_words, "--out", file, "--html", page)
    assert made.exit_code == 0, made.output
    words = " ".join(made.stdout.split())
    assert "LATE, as their files allow one: late: 7.8 h after its deadline; no time is left: 1.2 h needed" in words
    for shown in (("explain", file), ("explain", file, "one"), ("plan", "check", file, *book_words, "--now", NOW)):
        done = run(*shown)
        assert done.exit_code == 0, done.output
        assert "late: 7.8 h after its deadline; no time is left" in " ".join(done.stdout.split())
    assert "late by 7.8 h" in page.read_text(encoding="utf-8")
    checked = run("plan", "check", file, *book_words, "--now", NOW, "-o", "json")
    assert [(each["job"], round(each["by_hours"], 1)) for each in json.loads(checked.stdout)["late"]] == [("one", 7.8)]
    valid = run("validate", job, "--now", NOW)
    assert (valid.exit_code, "one is late already" in valid.output) == (0, True)


def test_an_edited_plan_is_refused(planned: Path, tmp_path: Path) -> None:
    text = (planned / "plan.json").read_text(encoding="utf-8")
    edited = tmp_path / "plan.json"
    edited.write_text(text.replace('"machines": 1', '"machines": 2'))
    assert edited.read_text() != text
    done = run("plan", "check", edited, "--now", NOW)
    assert done.exit_code == 2


def test_a_sum_that_is_none(planned: Path) -> None:
    done = run("plan", "check", planned / "plan.json", "--max-cost", "a lot")
    assert (done.exit_code, "--max-cost" in done.stderr) == (2, True)
