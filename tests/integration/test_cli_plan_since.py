"""``stepfare plan --since``: keep to the last plan in the state, or to one in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.controller.plans import last_plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.state.store import StateStore
from tests.support.command import plan, run, write_job
from tests.support.scenes import HOUR, NORTH, NOW, a_job, plan_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def places(path: Path) -> dict[str, tuple[str, str, str]]:
    lines = json.loads(path.read_text(encoding="utf-8"))["lines"]
    return {line["job"]: (line["region"], line["instance_type"], line["start"]) for line in lines}


def test_the_last_plan_written_is_kept_to(tmp_path: Path) -> None:
    """A limit keeps the first plan from the cheapest region; without it, and with a threshold above that, it stays."""
    write_job(tmp_path / "jobs", "llama-7b")
    limits = tmp_path / "limits.yaml"
    none = "{name: none, region: aws/us-east-2, amount: 0, unit: machines}"
    limits.write_text(f"limits: [{none}]\n", encoding="utf-8")
    first, kept, free = (tmp_path / f"{name}.json" for name in ("first", "kept", "free"))
    assert plan(tmp_path / "jobs", "--limits", limits, "--out", first).exit_code == 0
    options = ("--gap", "0.5", "--least-saving", "$1000")
    result = plan(tmp_path / "jobs", "--since", "last", *options, "--out", kept)
    name = json.loads(first.read_text(encoding="utf-8"))["plan_id"]
    all_stay = f"since {name}: of 1 job in both plans all are at their places\n"
    assert (result.exit_code, result.stderr) == (0, all_stay)
    assert places(kept) == places(first)
    moved = plan(tmp_path / "jobs", "--since", first, "--least-saving", "0", "--out", free)
    assert moved.exit_code == 0
    assert places(free) != places(first)
    assert (
        f"since {name}: of 1 job in both plans 0 are at their places; elsewhere, for want of room there or "
        "because moving saves enough: llama-7b (`stepfare plan diff` compares the two plans)"
        in " ".join(moved.stderr.split())
    )
    again = plan(tmp_path / "jobs", "--since", kept, *options, "-o", "json")
    assert json.loads(again.stdout)["lines"] == json.loads(kept.read_text(encoding="utf-8"))["lines"]


def test_without_an_earlier_plan_one_is_made_afresh_and_says_so(tmp_path: Path, home: Path) -> None:
    write_job(tmp_path / "jobs", "llama-7b")
    result = plan(tmp_path / "jobs", "--since", "last", "-o", "json")
    assert result.exit_code == 0
    assert "no plan named trial was written with --out or applied before: this one is made afresh" in result.stderr
    assert result.stdout == plan(tmp_path / "jobs", "-o", "json").stdout
    assert not home.exists()


def test_the_later_of_written_and_applied_is_the_last(tmp_path: Path) -> None:
    early, late = plan_of([a_job()], [NORTH]), plan_of([a_job()], [NORTH], now=NOW + HOUR)
    then = NOW + 2 * HOUR
    with StateStore.open(f"sqlite:///{tmp_path}/state.db", now=NOW) as store:
        assert last_plan(store, "trial", then) is None
        store.plans.put_plan("first", plan_to_json(late), NOW)
        assert last_plan(store, "trial", then) == late
        assert last_plan(store, "trial", NOW) is None
        assert last_plan(store, "night", then) is None
        store.made_plans.put("early", plan_to_json(early), early.as_of, NOW, "ana", "trial")
        assert last_plan(store, "trial", then) == late
        store.plans.put_plan("second", plan_to_json(early), NOW + HOUR)
        assert last_plan(store, "trial", then) == early
        store.made_plans.put("late", plan_to_json(late), late.as_of, NOW, "ana", "trial")
        assert last_plan(store, "trial", then) == late
        assert last_plan(store, "trial", NOW) == early


def test_a_trial_is_no_night(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "llama-7b")
    file = tmp_path / "plan.json"
    assert plan(tmp_path / "jobs", "--out", file).exit_code == 0
    assert "name" not in json.loads(file.read_text(encoding="utf-8"))
    night = plan(tmp_path / "jobs", "--name", "night", "--since", "last", "--out", file)
    assert "no plan named night was written" in night.stderr
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["name"] == "night"
    again = plan(tmp_path / "jobs", "--name", "night", "--since", "last", "-o", "json")
    assert again.stderr == f"since {written['plan_id']}: of 1 job in both plans all are at their places\n"
    listed = run("plan", "list")
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [
        ["night", written["plan_id"]],
        ["trial", written["plan_id"]],
    ]
    (row,) = json.loads(run("plan", "list", "--name", "night", "-o", "json").stdout)["plans"]
    assert (row["name"], row["digest"], row["jobs"], row["cost_usd"]) == (
        "night",
        written["digest"],
        1,
        written["cost_usd"],
    )
    assert run("plan", "list", "--name", "day").stdout == "no plan named day was written\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--least-saving", "5"), "counts only beside an earlier plan"),
        (("--since", "last", "--least-saving", "-5"), "is below zero"),
        (("--since", "last", "--least-saving", "much"), "--least-saving"),
        (("--since", "missing.json"), "missing.json: error: no such file"),
        (("--name", "quote"), "--name: 'quote' is the name of plans of accepted quotes"),
        (("--name", "Nightly run"), "lower-case letters, digits and -: nightly-run"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    write_job(tmp_path / "jobs", "llama-7b")
    result = plan(tmp_path / "jobs", *options)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_file_that_is_no_plan_or_was_edited_is_refused(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "llama-7b")
    text = plan_to_json(plan_of([a_job()], [NORTH]))
    for content, says in (
        ("{}", "is no plan"),
        (text.replace('"feasible"', '"optimal"').replace("north-1", "n"), "edit"),
    ):
        file = tmp_path / "plan.json"
        file.write_text(content, encoding="utf-8")
        result = plan(tmp_path / "jobs", "--since", file)
        assert result.exit_code == 2
        assert says in result.stderr or "was changed after it was made" in result.stderr
    assert plan_from_json(text).lines
    assert run("plan", tmp_path / "jobs", "--since").exit_code == 2
