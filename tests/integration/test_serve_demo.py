"""`stepfare serve --demo`: one world, of the jobs of tonight's plan; its home holds it, and nothing is left behind."""

from __future__ import annotations

import gzip
import json
import re
import signal
import socket
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pricing.money import Usd
from router.app.state_restoration import DEMO_AT
from router.cli.console import ExitCode
from router.config.job_files import read_limits
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json
from router.planning.document.plan_names import QUOTE
from router.planning.explain.changes import plan_diff
from router.prices.history import read_series
from router.render.figures import cents
from router.render.since_view import SinceView
from tests.support.clouds import STEPFARE
from tests.support.command import run
from tests.support.console_browser import command_json, serving
from tests.support.demo_console import DATA, GONE, LATER, NIGHTLY, NIGHTLY_JOB, make_files
from tests.support.demo_nights import MIDTRAINING
from tests.support.page_reader import read_page
from tests.support.repository import ROOT

MONTH = "2026-11"
CENT = Decimal("0.01")


@dataclass(frozen=True)
class Demo:
    """A console that serves the demo: its URL and its home."""

    url: str
    home: Path

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=120) as answer:
            text: str = answer.read().decode()
            return text

    def data(self, path: str) -> Any:
        return json.loads(self.page(f"/api/v1{path}"))

    def plan(self, number: int) -> Plan:
        """Return a plan that was made, the latest first."""
        digest = self.data("/plans?name=night")["plans"][number]["digest"]
        return plan_from_json(self.page(f"/api/v1/plans/{digest}"), digest)

    def gangs(self) -> list[dict[str, Any]]:
        """Return those that run or wait, and the last one of each job that is over."""
        found: list[dict[str, Any]] = self.data("/jobs")["gangs"]
        return found

    def attempts(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.data(f"/jobs/{quote(job, safe='')}")["attempts"]
        return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home = tmp_path_factory.mktemp("demo") / "home"
    with serving("--demo", "--dir", str(home)) as url:
        yield Demo(url, home)


@pytest.fixture(scope="module")
def teams(demo: Demo) -> Mapping[str, str]:
    """The team of each job of last night's and tonight's plan."""
    return {job.job: job.team for number in (1, 0) for job in demo.plan(number).jobs}


@pytest.mark.slow
def test_the_plan_is_the_one_of_the_readme(demo: Demo) -> None:
    assert f"{demo.data('/plans/latest')['plan_id']} made for" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_night_before_differs_as_nights_do_and_its_reasons_add_up_to_the_cent(demo: Demo) -> None:
    before, after = demo.plan(1), demo.plan(0)
    diff = plan_diff(before, after)
    view = SinceView(diff, before, "0" * 64, after)
    gone = {each.job for each in diff.changes if each.kind == "gone"}
    assert gone == {GONE.stem}
    assert {job.job for job in before.jobs} - gone == {NIGHTLY_JOB, MIDTRAINING, *LATER}
    assert any(each.before.region != each.after.region for each in diff.changes if each.before and each.after)
    assert view.title == "Since yesterday"
    assert Usd.total(row.together_usd for row in view.kinds) == after.cost_usd - before.cost_usd
    # As a reader adds them: each row of the page is rounded to the cent, so that their sum may be a cent off.
    shown = [Decimal(cents(row.together_usd)) for row in view.kinds]
    assert abs(sum(shown) - Decimal(cents(view.more_usd))) <= CENT * len(shown) / 2


class TestOneWorld:
    """Jobs, teams, places, prices and dates are the same everywhere."""

    @pytest.mark.slow
    def test_every_page_is_as_of_one_moment(self, demo: Demo) -> None:
        for path in ("/tonight", "/jobs", "/quotes", "/prices", "/prices/history", "/spend", "/budgets", "/audit"):
            assert f"Demo: made-up data, as of {DEMO_AT:%-d %b %H:%M} UTC" in demo.page(path), path
        assert [each for each in self._moments(demo) if each > DEMO_AT] == []

    def test_what_runs_is_of_the_plans(self, demo: Demo, teams: Mapping[str, str]) -> None:
        gangs = demo.gangs()
        assert [each["job"] for each in gangs if teams.get(each["job"]) != each["team"]] == []
        states = Counter("waits" if each["waits"] else each["state"] for each in gangs)
        assert states["running"] > 5
        assert states["waits"] == 1
        assert states["finished"] > 5

    def test_what_tonight_s_plan_ordered_by_now_runs_or_is_done(self, demo: Demo) -> None:
        plan, gangs = demo.plan(0), {each["job"]: each for each in demo.gangs()}
        begun = {line.job for line in plan.lines if line.kind == "order" and line.start < DEMO_AT}
        live = {name for name, each in gangs.items() if each["state"] == "running" or each["waits"]}
        digest = demo.data("/plans/latest")["digest"]
        assert {name for name, each in gangs.items() if each["plan"] == digest} == begun - {MIDTRAINING}
        assert live <= begun
        for name in begun - live:
            assert gangs[name]["result"] == "finished"
            assert gangs[name]["gone_at"] < gangs[name]["deadline"]
        lines = {(line.job, line.cloud, line.region) for line in plan.lines}
        assert {(name, gangs[name]["cloud"], gangs[name]["region"]) for name in begun} <= lines

    def test_each_job_of_tonight_that_runs_has_its_plan_why_per_cent_and_cost(self, demo: Demo) -> None:
        running = [each for each in demo.gangs() if each["state"] == "running"]
        for gang in running:
            page = demo.page(f"/jobs/{gang['job']}")
            links = {link.words: link.attributes["href"] for link in read_page(page).tags("a")}
            assert f"/plans/plan-{gang['plan'][:12]}" in links.values()
            assert "Why there" in demo.page(links["why there"]) or gang["job"] == MIDTRAINING
            assert re.search(r"<dt>Step</dt><dd[^>]*>[\d,]+, \d+ %", page), gang["job"]
            assert f"${Decimal(gang['spent_usd']):,.2f}" in page
            assert "with earlier runs" in page

    def test_a_gang_that_runs_since_yesterday_is_the_one_of_its_job_file(self, demo: Demo) -> None:
        (gang,) = [each for each in demo.attempts(MIDTRAINING) if each["state"] == "running"]
        text = (NIGHTLY / f"{MIDTRAINING}.yaml").read_text(encoding="utf-8")
        steps = int(re.findall(r"steps_done: (\d+)", text)[0])
        assert datetime.fromisoformat(gang["made_at"]) == datetime.fromisoformat(re.findall(r'since: "(.*)"', text)[0])
        assert steps < max(node["step"] for node in gang["nodes"]) < 9000

    def test_last_night_s_jobs_are_done_in_time(self, demo: Demo) -> None:
        digest = demo.data("/plans?name=night")["plans"][1]["digest"]
        for name in (GONE.stem, NIGHTLY_JOB):
            (attempt,) = [each for each in demo.attempts(name) if each["plan"] == digest]
            assert attempt["result"] == "finished"
            assert attempt["gone_at"] < attempt["deadline"]

    def test_the_month_is_of_these_jobs_and_its_sums_are_those_of_their_pages(
        self, demo: Demo, teams: Mapping[str, str]
    ) -> None:
        rows = self._costs(demo)
        assert {job: team for (team, job) in rows if job is not None} == teams
        for (team, job), spent in rows.items():
            if job is not None:
                assert teams[job] == team
                metered = [each for each in demo.attempts(job) if each["made_at"] >= f"{MONTH}-01"]
                assert sum((Decimal(each["metered_usd"] or 0) for each in metered), Decimal(0)).quantize(
                    CENT
                ) == spent.quantize(CENT), job
        (budget,) = [each for each in demo.data(f"/budgets?month={MONTH}")["budgets"] if each["scope"] == "all"]
        assert abs(sum(rows.values()) - Decimal(budget["spent_usd"])) < CENT

    def test_teams_had_spent_what_tonight_s_plan_says_before_its_first_order(self, demo: Demo) -> None:
        begun = f"{demo.plan(0).as_of:%Y-%m-%dT%H:%M}"
        for team in read_limits(NIGHTLY / "limits.yaml").teams:
            jobs = [job for (owner, job) in self._costs(demo) if owner == team.team and job is not None]
            attempts = [each for job in jobs for each in demo.attempts(job)]
            spent = [Decimal(each["metered_usd"] or 0) for each in attempts if f"{MONTH}-01" <= each["made_at"] < begun]
            assert sum(spent) == Decimal(team.spent.nanos) / 10**9, team.team

    def test_spot_places_of_tonight_have_a_history_up_to_their_price(self, demo: Demo) -> None:
        latest = {}
        for accelerator in sorted({line.accelerator for line in demo.plan(0).lines if line.market == "spot"}):
            for each in demo.data(f"/prices/history?accelerator={accelerator}&since=30d")["series"]:
                latest[each["cloud"], each["region"], each["instance_type"]] = Decimal(each["last_usd_per_hour"])
                assert each["observations"] > 1000
        spot = [line for line in demo.plan(0).lines if line.market == "spot"]
        assert {(line.cloud, line.region, line.instance_type) for line in spot} <= latest.keys()
        for line in spot:
            price = Decimal(line.usd_per_hour.nanos) / 10**9 / line.machines
            assert latest[line.cloud, line.region, line.instance_type] == price, line.job

    def test_quotes_are_of_these_jobs(self, demo: Demo, teams: Mapping[str, str]) -> None:
        quotes = demo.data("/quotes")["quotes"]
        assert [each["job"] for each in quotes if teams.get(each["job"]) != each["team"]] == []
        assert demo.page("/quotes").count("mira@desk") == 2
        for each in quotes:
            assert f'href="/quotes/{each["quote_id"]}"' in demo.page(f"/jobs/{each['job']}"), each["job"]

    def test_accepted_quotes_have_plans_of_their_own_and_pages_without_gaps(self, demo: Demo) -> None:
        plans = {each["digest"]: each for each in demo.data("/plans?limit=200")["plans"]}
        accepted = [each for each in demo.data("/quotes")["quotes"] if each["accepted"] is not None]
        assert {plans[each["accepted"]["plan"]]["name"] for each in accepted} == {QUOTE}
        for each in accepted:
            words = read_page(demo.page(f"/quotes/{each['quote_id']}")).words
            assert "does not record a run" not in words
            assert "does not record it" not in words
            assert "no end" not in words
            assert f"accepted, expected to cost at most ${Decimal(each['accepted']['ceiling_usd']):,.2f}" in words

    def test_an_apply_puts_at_risk_what_was_approved(self, demo: Demo) -> None:
        entries = json.loads(demo.page("/audit.json"))["entries"]
        approved = {each["digest"]: each["usd"] for each in entries if each["what"] == "approve"}
        assert len(approved) == 2
        applied = {each["digest"]: each["usd"] for each in entries if each["what"] == "apply"}
        assert {plan: applied[plan] for plan in approved} == approved

    def test_what_runs_is_within_its_order_and_its_step_is_not_behind_its_checkpoint(self, demo: Demo) -> None:
        for gang in demo.gangs():
            if gang["state"] == "running":
                made, ends = (datetime.fromisoformat(gang[name]) for name in ("made_at", "planned_finish"))
                assert ends > DEMO_AT, gang["job"]
                at_most = Decimal(gang["max_usd_per_hour"]) * Decimal((ends - made).total_seconds()) / 3600
                # A reservation is paid already: nothing more is at risk.
                assert not at_most or Decimal(gang["spent_usd"]) <= at_most, gang["job"]
            for node in gang["nodes"]:
                assert (node["step"] or 0) >= (node["saved_step"] or 0), gang["job"]
            assert "None" not in read_page(demo.page(f"/attempts/{gang['attempt']}")).words

    def test_a_job_that_is_planned_again_leads_to_tonight_s_plan(self, demo: Demo) -> None:
        links = {link.words: link.attributes["href"] for link in read_page(demo.page("/jobs/qwen3-30b-math")).tags("a")}
        assert links["tonight’s plan"] == "/plans/latest/jobs/qwen3-30b-math"
        assert "tonight’s plan</a>" not in demo.page("/jobs/bert-large-pretraining")

    def test_no_cost_leads_to_a_job_that_there_is_not(self, demo: Demo, teams: Mapping[str, str]) -> None:
        links = [link.attributes.get("href", "") for link in read_page(demo.page(f"/spend/{MONTH}")).tags("a")]
        named = {link.rsplit("/job/", 1)[1] for link in links if "/job/" in link}
        assert named <= {*teams, "__unallocated__"}
        assert len(named) > 10

    @staticmethod
    def _costs(demo: Demo) -> dict[tuple[str | None, str | None], Decimal]:
        rows = demo.data(f"/showback?month={MONTH}&by=team,job")["sections"]["groups"]["rows"]
        names = [tuple(None if row[key] == "__unallocated__" else row[key] for key in ("team", "job")) for row in rows]
        return {(team, job): Decimal(row["effective"]) for (team, job), row in zip(names, rows, strict=True)}

    @staticmethod
    def _moments(demo: Demo) -> list[datetime]:
        gangs = [datetime.fromisoformat(each["made_at"]) for each in demo.gangs()]
        quotes = [datetime.fromisoformat(each["asked_at"]) for each in demo.data("/quotes")["quotes"]]
        plans = [datetime.fromisoformat(each["as_of"]) for each in demo.data("/plans")["plans"]]
        return [*gangs, *quotes, *plans]


@pytest.mark.slow
def test_all_of_it_is_what_is_made_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "none"))
    make_files(tmp_path / "made")
    # Which bytes and names Parquet has for equal rows is of the library.
    kept, made = (
        {
            str(file.relative_to(folder)): file
            for file in folder.rglob("*")
            if file.suffix in (".csv", ".json", ".backup")
        }
        for folder in (DATA, tmp_path / "made")
    )
    assert made.keys() == kept.keys()
    for name, file in kept.items():
        first, second = file.read_bytes(), made[name].read_bytes()
        if file.suffix == ".backup":
            first, second = gzip.decompress(first), gzip.decompress(second)
        assert first == second, f"{name}: python -m tests.support.demo_console"
    assert read_series(DATA / "history").equals(read_series(tmp_path / "made" / "history"))


@pytest.mark.slow
def test_it_serves_on_loopback_until_it_is_told_to_stop_and_leaves_nothing(demo: Demo) -> None:
    command = [str(STEPFARE), "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, ExitStack() as ending:
        ending.callback(process.kill)
        assert process.stderr is not None
        said = [process.stderr.readline(), process.stderr.readline()]
        made = Path(said[0].removeprefix("demo home: ").strip())
        found = re.search(r"http://127\.0\.0\.1:\d+", said[1])
        assert found is not None, said
        assert made.is_dir()
        cost = demo.plan(0).cost_usd.dollars()
        assert f'<data value="{cost:.2f}">' in Demo(found[0], made).page("/tonight")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not made.exists()


def test_commands_say_the_same_of_its_home(demo: Demo) -> None:
    budgets = command_json(demo.home, "budget", "check", "--month", MONTH, "--now", f"{DEMO_AT:%FT%RZ}", "--no-notify")
    assert budgets["budgets"] == demo.data(f"/budgets?month={MONTH}")["budgets"]


@pytest.mark.parametrize(
    "options",
    [("--demo", "--host", "0.0.0.0"), ("--demo", "--open-access"), ("--dir", "somewhere")],
    ids=["for others", "with other access", "a folder alone"],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...]) -> None:
    assert run("serve", *options).exit_code == ExitCode.INVALID_INPUT


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # The folder is wrong whether the port is free or not.
        answer = run("serve", "--demo", "--dir", tmp_path, "--port", taken.getsockname()[1])
    assert answer.exit_code == ExitCode.INVALID_INPUT
    assert "is not empty" in answer.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
