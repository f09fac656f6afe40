"""`stepfare serve --demo`: its data are those of the examples, its home holds them, and nothing is left behind."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import urllib.request
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.money import Usd
from router.app.console_demo import write_demo_home
from router.cli.console import ExitCode
from router.planning.changes import plan_diff
from router.planning.plan_json import plan_from_json
from router.render.figures import cents
from router.render.since_view import since_view
from tests.support.clouds import STEPFARE
from tests.support.command import run
from tests.support.console_browser import command_json
from tests.support.demo_console import BILLS, DATA, GONE, MONTH, NEW, make_files
from tests.support.repository import ROOT

MONTH_OPTIONS = ("--month", "2026-11", "--now", "2026-12-03T09:00Z")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("demo") / "home"
    write_demo_home(folder)
    return folder


def test_bills_are_those_of_the_example() -> None:
    for name in BILLS:
        assert (DATA / name).read_bytes() == (MONTH / name).read_bytes(), "python -m tests.support.demo_console"


def test_the_plan_is_the_one_of_the_readme() -> None:
    digest = json.loads(gzip.decompress((DATA / "plan.json.gz").read_bytes()))["digest"]
    assert f"plan-{digest[:12]} made for" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_night_before_differs_as_nights_do_and_its_reasons_add_up_to_the_cent() -> None:
    before, after = (
        plan_from_json(gzip.decompress((DATA / name).read_bytes()).decode(), name)
        for name in ("plan-before.json.gz", "plan.json.gz")
    )
    diff = plan_diff(before, after)
    view = since_view(diff, before, "0" * 64, after)
    jobs = {kind: {each.job for each in diff.changes if each.kind == kind} for kind in ("new", "gone", "moved")}
    assert (jobs["new"], jobs["gone"]) == (set(NEW), {GONE.stem})
    assert any(each.before.region != each.after.region for each in diff.changes if each.before and each.after)
    assert {cause.kind for each in diff.changes if each.kind == "moved" for cause in each.causes} == {"price", "time"}
    assert view.title == "Since yesterday"
    assert view.sentence == "2 jobs are new, 1 is gone, 3 moved, 5 have other prices, 5 have other costs"
    assert Usd.total(row.change.together_usd for row in view.kinds) == after.cost_usd - before.cost_usd
    # As a reader adds them: each row of the page is rounded to the cent, so that their sum may be a cent off.
    shown = [Decimal(cents(row.change.together_usd)) for row in view.kinds]
    assert Decimal(cents(view.more_usd)) == Decimal("-519.43")
    assert abs(sum(shown) - Decimal(cents(view.more_usd))) <= Decimal("0.01")


@pytest.mark.slow
def test_all_of_it_is_what_is_made_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "none"))
    make_files(tmp_path / "made")
    kept = {str(file.relative_to(DATA)): file for file in DATA.rglob("*") if file.is_file()}
    made = {str(file.relative_to(tmp_path / "made")): file for file in (tmp_path / "made").rglob("*") if file.is_file()}
    assert made.keys() == kept.keys()
    for name, file in kept.items():
        first, second = file.read_bytes(), made[name].read_bytes()
        if file.suffix in (".gz", ".backup"):
            first, second = gzip.decompress(first), gzip.decompress(second)
        assert first == second, f"{name}: python -m tests.support.demo_console"


def test_the_home_holds_the_month_with_its_budgets_and_a_gang_that_runs(home: Path) -> None:
    budgets = command_json(home, "budget", "check", *MONTH_OPTIONS, "--no-notify")["budgets"]
    assert {each["name"] or "all": Decimal(each["spent_usd"]).quantize(Decimal("0.01")) for each in budgets} == {
        "all": Decimal("26750.96"),
        "research": Decimal("11154.31"),
        "speech": Decimal("4535.01"),
    }
    gangs = command_json(home, "status")["gangs"]
    assert [each["job"] for each in gangs if each["state"] == "running"] == ["whisper-nightly"]


def test_it_serves_on_loopback_until_it_is_told_to_stop_and_leaves_nothing() -> None:
    with subprocess.Popen([STEPFARE, "serve", "--demo", "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline(), process.stderr.readline()]
        made = Path(said[0].removeprefix("demo home: ").strip())
        found = re.search(r"http://127\.0\.0\.1:\d+", said[1])
        assert found is not None, said
        assert made.is_dir()
        shown = {}
        for path in ("/tonight", "/jobs", "/spend/2026-11"):
            with urllib.request.urlopen(f"{found[0]}{path}", timeout=60) as answer:
                shown[path] = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert '<data value="25131.74">' in shown["/tonight"]
    assert "whisper-nightly" in shown["/jobs"]
    assert '<data value="26750.96">' in shown["/spend/2026-11"]
    assert all("Demo: made-up data" in text for text in shown.values())
    assert not made.exists()


@pytest.mark.parametrize(
    "options",
    [("--demo", "--host", "0.0.0.0"), ("--demo", "--open-access"), ("--dir", "somewhere")],
    ids=["for others", "with other access", "a folder alone"],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...]) -> None:
    assert run("serve", *options).exit_code == ExitCode.INVALID_INPUT


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    assert run("serve", "--demo", "--dir", tmp_path).exit_code == ExitCode.INVALID_INPUT
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
