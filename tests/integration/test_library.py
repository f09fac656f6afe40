"""The library does what its page shows, and what the commands do; its names are those that the page lists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router import api
from router.showback.report.export import report_to_json
from tests.support.command import run
from tests.support.doc_pages import DOCS, blocks
from tests.support.repository import ROOT

PAGE = DOCS / "library.md"
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
JOB = ROOT / "examples/nightly/bert-reranker-squad.yaml"
LIMITS = ROOT / "examples/nightly/limits.yaml"


@pytest.mark.slow
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


BILLS = [ROOT / "examples/showback" / f"bill-{cloud}.csv" for cloud in ("aws", "gcp")]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: api.load_jobs(JOB, now=NOW.replace(tzinfo=None)), "now: .* has no time zone"),
        (lambda: api.load_night(JOB, now=NOW, book="embedded", gap=-1), "gap: -1 is no share"),
        (lambda: api.quote_jobs(JOB, now=NOW, by=NOW.replace(tzinfo=None), book="embedded"), "by: .* no time zone"),
        (
            lambda: api.compare_changes(api.load_night(JOB, now=NOW, book="embedded"), {"a": [("--x", "y")]}),
            "--x: is no",
        ),
        (lambda: api.report_month("2026-13", *BILLS, now=NOW), "'2026-13' is no month"),
        (lambda: api.report_month("2026-11", *BILLS, now=NOW, by=("tem",)), "'tem' is no group"),
    ],
)
def test_a_wrong_argument_is_named(ask: Callable[[], object], words: str) -> None:
    with pytest.raises(api.InvalidInputError, match=words):
        ask()


def test_a_month_of_focus_files_is_the_report_of_the_command() -> None:
    report = api.report_month("2026-11", *BILLS, now=datetime(2026, 12, 3, 9, tzinfo=UTC))
    files = [word for bill in BILLS for word in ("--from-file", str(bill))]
    words = ("showback", "--month", "2026-11", *files, "--now", "2026-12-03T09:00Z", "-o", "json")
    assert json.loads(report_to_json(report)) == json.loads(run(*words).stdout)
    assert report.section("teams").rows


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "router", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert re.search(r"\d+\.\d+\.\d+", done.stdout)
