"""``stepfare budget`` as people run it, who is told, and that plans keep to hard budgets."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pricing.money import Usd, UsdPerHour
from router.cli.console import ExitCode
from router.controller.history.events import EventLevel
from router.controller.report import notify
from router.controller.report.notify import Channel
from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.state.audit import verify_chain
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.command import run, write_job
from tests.support.new_state import open_state
from tests.support.state_values import NOW, attempt, entry, node

MONTH = datetime(2026, 11, 1, tzinfo=UTC)
AT = "2026-11-11T00:00:00Z"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    return folder


def opened(home: Path) -> StateStore:
    return open_state(home / "state.db", NOW)


def daily(days: int, usd: str, **said: Any) -> list[LedgerEntry]:
    """An hour of each day from the first of the month."""
    starts = [MONTH + timedelta(days=day) for day in range(days)]
    return [
        entry(
            f"{said.get('team')} {at}",
            start=at,
            end=at + timedelta(hours=1),
            usd=Usd.parse(usd),
            recorded_at=at + timedelta(hours=1),
            **said,
        )
        for at in starts
    ]


def budget(*arguments: object, code: ExitCode = ExitCode.OK, at: str = AT) -> Result:
    done = run("budget", *arguments, "--now", at)
    assert done.exit_code == code, done.stderr
    return done


def records(*arguments: object, **said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(budget(*arguments, "-o", "json", **said).stdout)["budgets"]
    return found


def test_budgets_are_set_listed_and_taken_away_and_the_audit_log_knows(home: Path) -> None:
    home.mkdir()
    assert "no budget holds in 2026-11" in budget("list").stdout
    budget("set", "12,000.50", "--team", "research", "--hard", "--warn", "80,100")
    budget("set", "$90000", "--all", "--from", "2026-12")
    budget("set", "7", "--project", "asr", "--warn", "")
    lines = budget("list").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["BUDGET", "OF", "SINCE", "USD"],
        ["team", "research", "2026-11", "$12,000.50"],
        ["project", "asr", "2026-11", "$7.00"],
    ]
    assert max(map(len, lines)) <= 80
    assert [each["scope"] for each in records("list", "--month", "2026-12")] == ["all", "team", "project"]
    budget("remove", "--team", "research", "--from", "2026-12")
    assert [each["scope"] for each in records("list", "--month", "2026-12")] == ["all", "project"]
    assert records("list")[0]["usd"] == "12000.50"
    assert [each["usd"] for each in records("list", "--history")] == ["90000.00", "7.00", "12000.50", None]
    failed = budget("remove", "--team", "nobody", code=ExitCode.FAILURE)
    assert "no budget of team nobody holds in 2026-11" in failed.stderr
    with opened(home) as store:
        log = store.audit.entries()
    assert [(one.what, one.details["budget"], str(one.usd)) for one in log] == [
        ("budget set", "team research", "12000.50"),
        ("budget set", "all", "90000.00"),
        ("budget set", "project asr", "7.00"),
        ("budget remove", "team research", "0.00"),
    ]
    assert verify_chain(log) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "5"), "no owner of the budget is given"),
        (("set", "5", "--team", "a", "--all"), "a budget has one owner only"),
        (("set", "5", "--team", " "), "--team: is empty"),
        (("set", "much", "--all"), "AMOUNT"),
        (("set", "-100", "--all"), "AMOUNT: -100 is below zero"),
        (("set", "--team", "x", "-1,000.50"), "AMOUNT: -1,000.50 is below zero"),
        (("set", "5", "--all", "--warn", "80,50"), "rising"),
        (("set", "5", "--all", "--warn", "half"), "'half' is no list of percents"),
        (("set", "5", "--all", "--from", "december"), "--from"),
        (("remove",), "give one of the three"),
    ],
)
def test_what_is_no_budget_says_where(home: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in budget(*arguments, code=ExitCode.INVALID_INPUT).stderr
    assert not home.exists()


def test_a_budget_of_a_name_that_nobody_has_says_so(home: Path) -> None:
    told = "nobody has spent or planned under that name so far"
    assert f"team research: {told}" in budget("set", "100", "--team", "research").stderr
    assert told not in budget("set", "100", "--all").stderr
    with opened(home) as store:
        store.ledger.add(daily(1, "5"))
    assert told not in budget("set", "100", "--team", "research").stderr
    assert f"project research: {told}" in budget("set", "100", "--project", "research").stderr


def test_check_has_what_is_spent_what_still_runs_and_a_forecast(home: Path) -> None:
    budget("set", "100", "--team", "research")
    with opened(home) as store:
        store.ledger.add(daily(10, "5"))
        store.attempts.add(attempt(), [node(made_at=NOW, gone_at=None, usd_per_hour=UsdPerHour.parse("2"))])
    later = (NOW + timedelta(hours=3)).isoformat()
    (found,) = records("check", at=later)
    assert (found["spent_usd"], found["running_usd"]) == ("50.00", "6.00")
    assert (found["percent"], found["passed"]) == (56, [50])
    # Ten days of five dollars, then none up to the 21st.
    assert found["will_be_over"] is False
    (found,) = records("check")
    # On the 11th: 50 are spent, 20 days of 5 are left.
    assert (found["spent_usd"], found["forecast_usd"], found["will_be_over"]) == ("50.00", "150.00", True)
    lines = budget("check").stdout.splitlines()
    assert lines[1].split() == [
        "team",
        "research",
        "$100.00",
        "$50.00",
        "$0.00",
        "50.0%",
        "$150.00",
        "will",
        "be",
        "over",
    ]
    (past,) = records("check", "--month", "2026-10")[:1] or ({"none": True},)
    assert past == {"none": True}


def test_a_forecast_has_what_is_ordered_until_a_later_plan_or_the_end_of_the_job(home: Path) -> None:
    """Ten days of 5 dollars; of the 20 to come the first two have an order of 100 together: 50 + 100 + 18 x 5."""
    now = datetime(2026, 11, 11, tzinfo=UTC)
    budget("set", "1000", "--all")
    order: dict[str, Any] = {"kind": LedgerEntryKind.PLANNED, "attempt": "", "rank": None, "job": "later", "start": now}
    order |= {"end": now + timedelta(days=2), "machines": 1, "quantity": Fraction(48)}
    with opened(home) as store:
        store.ledger.add(daily(10, "5"))
        first = {**order, "plan": "a" * 64, "usd": Usd.parse("700"), "recorded_at": now - timedelta(hours=3)}
        second = {**order, "plan": "b" * 64, "usd": Usd.parse("100"), "recorded_at": now - timedelta(hours=2)}
        store.ledger.add([entry("first", **first), entry("second", **second)])
    (status,) = records("check")
    assert (status["spent_usd"], status["forecast_usd"]) == ("50.00", "240.00")
    done = run("showback", "--month", "2026-11", "--now", AT, "-o", "json")
    parts = {row["part"]: row["forecast"] for row in json.loads(done.stdout)["sections"]["forecast"]["rows"]}
    assert parts == {"booked": "50", "orders": "100", "nights": "90", "all": "240"}
    wide = run("showback", "--month", "2026-11", "--now", AT, "-o", "wide").stdout
    assert "FORECAST BY PARTS" in wide
    finished: dict[str, Any] = {"phase": Phase.FINISHED, "result": "finished", "result_at": now, "gone_at": now}
    with opened(home) as store:
        store.attempts.add(attempt(plan="b" * 64, job="later", **finished), [])
    assert records("check")[0]["forecast_usd"] == "150.00"


def test_a_hard_budget_that_is_exceeded_ends_with_four(home: Path) -> None:
    budget("set", "49", "--team", "research")
    budget("set", "10", "--project", "asr", "--hard")
    with opened(home) as store:
        store.ledger.add([*daily(10, "5"), *daily(2, "5", team="vision", project="asr")])
    assert records("check")[0]["over"] is True
    with opened(home) as store:
        store.ledger.add(daily(1, "0.000000001", team="ops", project="asr"))
    done = budget("check", "-o", "csv", code=ExitCode.OVER_BUDGET)
    assert "project asr is over its hard budget" in done.stderr
    assert [row["spent_usd"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["50.00", "10.000000001"]


def test_people_are_told_once_for_each_mark(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str, EventLevel]] = []
    works = [False]

    def send(title: str, text: str, level: EventLevel) -> bool:
        said.append((title, text, level))
        return works[0]

    monkeypatch.setattr(notify, "open_channels", lambda addresses: (Channel("pager", send),) if addresses else ())
    monkeypatch.setenv("PAGER", "json://pager.invalid")
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text("notify: {urls: [env:PAGER]}\n", encoding="utf-8")
    budget("set", "100", "--team", "research", "--hard")
    with opened(home) as store:
        store.ledger.add(daily(9, "6"))

    def check(*more: str, code: ExitCode = ExitCode.OK) -> Result:
        return budget("check", "--deploy", deploy, *more, code=code)

    check("--no-notify")
    assert said == []
    assert "pager did not take the message" in check().stderr
    works[0] = True
    check()
    title, text, level = said[-1]
    assert (title, level) == ("stepfare: team research: budget", EventLevel.WARNING)
    assert text.startswith("team research: $54.00 of $100.00 (54 %) of the hard budget of 2026-11 is spent; at this")
    check()
    assert len(said) == 2
    with opened(home) as store:
        store.ledger.add(daily(1, "47", team="research", project="new"))
    check(code=ExitCode.OVER_BUDGET)
    assert said[-1][1].endswith("is spent; plans and orders that go over it are refused")
    assert said[-1][2] is EventLevel.ERROR
    check(code=ExitCode.OVER_BUDGET)
    assert len(said) == 3
    budget("set", "101", "--team", "research", "--hard")
    check()
    assert len(said) == 4


def plan(folder: Path, *arguments: object) -> Result:
    return run("plan", folder, "--book", "embedded", "-o", "json", *arguments)


def test_tonights_plan_keeps_to_a_hard_budget_and_says_where_it_is_from(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.cli.options.chosen_clock", lambda: lambda: datetime.fromisoformat(AT))
    jobs = tmp_path / "jobs"
    write_job(jobs, "llama")
    free = plan(jobs)
    assert free.exit_code == ExitCode.OK, free.stderr
    assert "budget" not in free.stderr
    budget("set", "60", "--team", "research", "--hard")
    with opened(home) as store:
        store.ledger.add(daily(10, "5.99"))
    held = plan(jobs)
    assert held.exit_code == ExitCode.UNPLACED
    assert (
        "team research: $59.90 of the hard budget (`stepfare budget`) of $60.00 for 2026-11 is spent, by the ledger"
        " and bills" in held.stderr
    )
    (unplaced,) = json.loads(held.stdout)["unplaced"]
    assert "budget" in json.dumps(unplaced)
    # A plan for a named moment is the same everywhere: it knows of no state.
    named = plan(jobs, "--now", AT)
    assert named.exit_code == ExitCode.OK
    assert named.stdout == free.stdout
    # What the limits file says is spent is believed.
    limits = tmp_path / "limits.yaml"
    limits.write_text("teams: [{team: research, budget: $100000, spent: $0}]\n", encoding="utf-8")
    believed = plan(jobs, "--limits", limits)
    said = "$0.00 of the hard budget (`stepfare budget`) of $60.00 for 2026-11 is spent, by the limits file"
    assert said in believed.stderr
    # A budget that is overspent places nothing, and says so.
    with opened(home) as store:
        store.ledger.add(daily(1, "1000", team="research", project="more"))
    assert plan(jobs).exit_code == ExitCode.UNPLACED
