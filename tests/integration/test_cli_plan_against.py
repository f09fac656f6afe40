"""``--html --against``: the page of a plan with what changed since another one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.store import StateStore
from tests.support.command import plan, run, write_job
from tests.support.scenes import NORTH, NOW, SOUTH, a_job, plan_of

YESTERDAY = plan_of([a_job("a"), a_job("gone")], [NORTH], now=NOW - timedelta(days=1))
TODAY = plan_of([a_job("a"), a_job("fresh")], [NORTH, SOUTH])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(plan_to_json(YESTERDAY), encoding="utf-8")
    after.write_text(plan_to_json(TODAY), encoding="utf-8")
    return before, after, tmp_path / "page.html"


def test_a_plan_is_compared_with_a_file(files: tuple[Path, Path, Path], home: Path) -> None:
    before, after, page = files
    result = run("plan", "show", after, "--html", page, "--against", before)
    assert (result.exit_code, result.stderr) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert "Since yesterday" in text
    assert 'data-change="fresh"' in text
    assert 'data-change="gone"' in text
    assert not home.exists()


def test_last_is_the_latest_plan_of_another_night(files: tuple[Path, Path, Path], home: Path) -> None:
    _, after, page = files
    with StateStore.open(f"sqlite:///{home}/state.db", now=NOW) as store:
        for each in (YESTERDAY, TODAY):
            store.made_plans.put(plan_content(each)["digest"], plan_to_json(each), each.as_of, NOW, "ana", "trial")
        night = replace(YESTERDAY, solver="of another name")
        store.made_plans.put(plan_content(night)["digest"], plan_to_json(night), night.as_of, NOW, "ana", "night")
    assert run("plan", "show", after, "--html", page, "--against", "last").exit_code == 0
    assert f"plan-{plan_content(YESTERDAY)['digest'][:12]}" in page.read_text(encoding="utf-8")


def test_without_an_earlier_night_the_page_says_nothing_of_changes(tmp_path: Path) -> None:
    write_job(tmp_path / "jobs", "llama-7b")
    page = tmp_path / "page.html"
    result = plan(tmp_path / "jobs", "--html", page, "--against", "last")
    assert result.exit_code == 0
    assert "no plan named trial of an earlier night is stored" in result.stderr
    assert "data-change" not in page.read_text(encoding="utf-8")


def test_it_needs_a_page_and_a_plan(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    before, after, page = files
    alone = run("plan", "show", after, "--against", before)
    assert (alone.exit_code, "--against" in alone.stderr, "--html" in alone.stderr) == (2, True, True)
    missing = run("plan", "show", after, "--html", page, "--against", tmp_path / "none.json")
    assert (missing.exit_code, "none.json" in missing.stderr) == (2, True)
    assert not page.exists()
