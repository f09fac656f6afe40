"""``stepfare explain``: the plan in sentences, one job in full, names that are not there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from pricing.problems import InvalidInputError
from router.app.plan_rerun import PlanFiles, rebuild_request
from router.config.plan_files import read_plan
from router.planning.document.plan import JobSummary, Plan
from router.planning.document.plan_json import plan_to_json
from tests.support.command import plan, run, write_job
from tests.support.night import nightly_plan


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("night") / "plan.json"
    file.write_text(plan_to_json(nightly_plan()), encoding="utf-8")
    return file


def job(night: Plan, name: str) -> JobSummary:
    return next(j for j in night.jobs if j.job == name)


@pytest.mark.slow
def test_the_whole_plan_has_a_sentence_a_job(night: Path) -> None:
    made = nightly_plan()
    result = run("explain", night)
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert all(f"{j.job}: " in result.stdout for j in made.jobs)
    flat = " ".join(result.stdout.split())
    assert any(f"${j.cost_usd.dollars():,.2f}; next best " in flat for j in made.jobs if j.runner_up)


@pytest.mark.parametrize("name", ["llama3-70b-sft-code", "resnet50-weekly", "mpt-13b-pretrain", "mpt-70b-continued"])
def test_one_job_in_full(night: Path, name: str) -> None:
    found = job(nightly_plan(), name)
    result = run("explain", night, name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{name} (team {found.team})\n")
    assert max(map(len, result.stdout.splitlines())) <= 80
    flat = " ".join(result.stdout.split())
    assert "WHY HERE" in flat
    assert "steps/h expected" in flat
    assert ("OTHERWISE" in flat) == bool(found.alternatives)
    assert len(found.alternatives) >= 3
    assert ("Offers that cannot serve it" in flat) == bool(found.dropped)
    assert all(f"{c.rule}: " in flat for c in found.constraint_costs)
    if found.deadline is not None:
        assert f"({found.confidence:.0%} asked)" in flat
    else:
        assert "reserved until" in flat
        assert "no deadline" in flat


def test_json_is_the_jobs_part_of_the_plan(night: Path) -> None:
    whole = json.loads(run("explain", night, "-o", "json").stdout)
    one = json.loads(run("explain", night, "resnet50-weekly", "-o", "json").stdout)
    assert one["schema_version"] == whole["schema_version"] == 1
    assert [j["job"] for j in one["jobs"]] == ["resnet50-weekly"]
    assert {line["job"] for line in one["lines"]} == {"resnet50-weekly"}
    assert [terms["job"] for terms in one["cost_terms"]] == ["resnet50-weekly"]
    assert len(whole["jobs"]) == len(nightly_plan().jobs)
    assert whole["plan_id"] == one["plan_id"] == json.loads(night.read_text(encoding="utf-8"))["plan_id"]


def test_an_unknown_job_is_2_with_the_nearest_name(night: Path) -> None:
    for output in ("table", "json"):
        result = run("explain", night, "resnet50-weekli", "-o", output)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{night}: error: JOB: the plan has no job 'resnet50-weekli'" in result.stderr
        assert "did you mean resnet50-weekly?" in result.stderr


def test_a_job_that_was_left_out_is_told_what_would_do(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "rush", deadline="+1h")
    file = tmp_path / "plan.json"
    assert plan(tmp_path / "jobs", "--out", file).exit_code == 3
    text = run("explain", file, "rush").stdout
    assert "left out: the deadline is too near" in text
    assert "it would fit with +1 h" in text
    assert "WHY HERE" not in text
    assert "left out" in run("explain", file).stdout


@pytest.mark.slow
def test_the_quote_of_the_same_job_is_named_beside_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    path = write_job(tmp_path, "llama-7b", steps=9000)
    at = ("--book", "embedded", "--now", "2026-11-21T18:00:00Z")
    quoted = json.loads(run("quote", path, "-o", "json", *at).stdout)["quotes"][0]
    out = tmp_path / "plan.json"
    assert run("plan", path, "--out", out, *at).exit_code == 0
    text = " ".join(run("explain", out, "llama-7b").stdout.split())
    assert f"{quoted['quote_id']} expects ${quoted['usd']['mean']}, the mean of 400 simulated runs" in text
    expected = json.loads(out.read_text(encoding="utf-8"))["jobs"][0]["cost_usd"]
    assert f"the plan expects ${float(expected):,.2f} of the lines above" in text
    assert float(quoted["plan_usd"]) == pytest.approx(float(expected), abs=0.01)
    place, error = (f"${float(quoted[name]):,.2f}" for name in ("place_usd", "place_error_usd"))
    alone = f"On the place of a plan of this job alone, such runs cost {place} (±{error}) where"
    assert alone in text
    rows = re.findall(r"(?:order|outlook|fallback) aws/\S+ 1x \S+ (?:spot|od) ([\d.,]+) \$([\d.,]+) \$([\d.,]+)", text)
    hours, prices, costs = (
        np.array([float(cell.replace(",", "")) for cell in column]) for column in zip(*rows, strict=True)
    )
    assert costs == pytest.approx(hours * prices, rel=0.02)
    assert costs.sum() == pytest.approx(float(expected), abs=0.02)
    assert float(quoted["place_usd"]) == pytest.approx(float(expected), rel=0.1)


def stored_plan(folder: Path, *more: object) -> Path:
    out = folder / "plan.json"
    assert plan(folder / "jobs", "--book", "embedded", "--out", out, *more).exit_code == 0
    return out


def test_what_changes_are_worth_is_told_from_the_state_or_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    write_job(tmp_path / "jobs", "calm", steps=9000, deadline="+2d")
    file = stored_plan(tmp_path)
    result = run("explain", file, "calm", "--book", "embedded")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "this gang alone, other jobs held fixed" in " ".join(result.stdout.split())
    assert "\ndeadline an hour later " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    worth = json.loads(run("explain", file, "calm", "--book", "embedded", "-o", "json").stdout)["gang_worth"]
    planned = json.loads(file.read_text(encoding="utf-8"))["jobs"][0]["cost_usd"]
    assert float(worth["cases"][0]["cost_usd"]) == pytest.approx(float(planned), abs=0.01)
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "elsewhere"))
    unknown = " ".join(run("explain", file, "calm", "--book", "embedded").stdout.split())
    assert "not known here: the state does not know this plan and its jobs; --jobs, --limits and --book" in unknown
    files = ("--jobs", tmp_path / "jobs", "--book", "embedded")
    assert json.loads(run("explain", file, "calm", *files, "-o", "json").stdout)["gang_worth"] == worth


def test_without_the_book_of_the_plan_it_is_not_told_what_changes_are_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    write_job(tmp_path / "jobs", "calm", steps=9000, deadline="+2d")
    file = stored_plan(tmp_path, "--max-age", "369d")
    document = json.loads(run("explain", file, "calm", "-o", "json").stdout)
    assert document["gang_worth"]["unknown"].startswith("--book: the price book ")
    assert document["gang_worth"]["unknown"].endswith(" of the plan is not stored here (name it)")


@pytest.mark.slow
def test_rules_are_priced_by_planning_again(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "rush", more="residency: {allow: [JP]}\n")
    file = stored_plan(tmp_path)
    given = ("--jobs", tmp_path / "jobs", "--book", "embedded")
    result = run("explain", file, "rush", *given)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "What its rules cost the plan, planned again without each; others may move" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    document = json.loads(run("explain", file, "rush", *given, "-o", "json").stdout)
    prices = {price["rule"]: price for price in document["constraint_prices"]}
    assert list(prices) == ["residency", "deadline"]
    assert {price["basis"] for price in prices.values()} == {"resolved"}
    assert float(prices["residency"]["saves_usd"]) > 0
    assert "constraint_prices" not in json.loads(run("explain", file, "rush", "-o", "json").stdout)


def test_files_that_are_not_those_of_the_plan_are_2(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "rush")
    file = stored_plan(tmp_path)
    result = run("explain", file, "--jobs", tmp_path / "jobs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--jobs: prices the rules of one job\n    name JOB" in result.stderr
    result = run("explain", file, "rush", "--limits", tmp_path / "limits.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--limits: counts only beside job files\n    add --jobs PATH" in result.stderr
    write_job(tmp_path / "jobs", "rush", steps=2000)
    write_job(tmp_path / "jobs", "new")
    result = run("explain", file, "rush", "--jobs", tmp_path / "jobs", "--book", "embedded")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "job 'rush' was changed after the plan was made" in result.stderr
    assert "job 'new' is not in the plan" in result.stderr
    assert "price book" not in result.stderr


def test_another_price_book_is_refused(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "rush")
    stored = read_plan(stored_plan(tmp_path))
    files = PlanFiles((str(tmp_path / "jobs"),), "embedded", None)
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    assert rebuild_request(stored, files, hour, minute)[1]
    with pytest.raises(InvalidInputError, match="the price book embedded is not the one of the plan"):
        rebuild_request(replace(stored, book_digest="b" * 64), files, hour, minute)


@pytest.mark.slow
def test_limits_that_are_not_those_of_the_plan_are_noted(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "rush")
    limits = tmp_path / "limits.yaml"
    limits.write_text("default_cap_machines: 8\n", encoding="utf-8")
    file = stored_plan(tmp_path, "--limits", limits)
    given = ("--jobs", tmp_path / "jobs", "--book", "embedded")
    assert run("explain", file, "rush", *given, "--limits", limits).stderr == ""
    assert "the limits are not those of the plan" in run("explain", file, "rush", *given).stderr
