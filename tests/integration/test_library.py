"""The library does what its page shows, and what the commands do; its names are those that the page lists."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router import api
from tests.support.command import run
from tests.support.doc_pages import DOCS, blocks
from tests.support.repository import ROOT

PAGE = DOCS / "library.md"
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
JOB = ROOT / "examples/nightly/bert-reranker-squad.yaml"
LIMITS = ROOT / "examples/nightly/limits.yaml"


def test_the_page_shows_what_its_programs_print() -> None:
    program = "\n".join(block.text for block in blocks(PAGE, "python"))
    shown = "".join(block.text for block in blocks(PAGE, "text"))
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (shown.strip(), "")


def test_a_plan_is_that_of_the_command_to_the_byte() -> None:
    words = (
        "plan",
        str(JOB),
        "--limits",
        str(LIMITS),
        "--book",
        "embedded",
        "--now",
        "2026-11-21T18:00Z",
        "-o",
        "json",
    )
    night = api.load_night(JOB, now=NOW, book="embedded", limits=LIMITS)
    plan = api.make_plan(night)
    assert api.plan_to_json(plan).strip() == run(*words).stdout.strip()
    assert api.plan_from_json(api.plan_to_json(plan), "plan") == plan
    again = api.PlanRequest(api.load_jobs(JOB, now=NOW), api.load_book("embedded"), api.load_limits(LIMITS), NOW)
    assert api.make_plan(again).cost_usd == plan.cost_usd


def test_every_name_is_on_the_page_and_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in api.__all__ if f"{name}" not in page or not hasattr(api, name)] == []


def test_what_is_wrong_is_said_with_all_problems(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nteam: t\nsteps: many\n")
    with pytest.raises(api.InvalidInputError) as caught:
        api.load_night(tmp_path / "job.yaml", now=NOW, book="embedded", limits=tmp_path / "none.yaml")
    assert len(caught.value.problems) > 1
    night = api.load_night(JOB, now=NOW, book="embedded")
    for ask in (api.price_rules, api.estimate_job):
        with pytest.raises(api.InvalidInputError, match="no job 'nobody'"):
            ask(night, "nobody")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "router", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert re.search(r"\d+\.\d+\.\d+", done.stdout)
