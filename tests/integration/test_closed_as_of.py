"""A closed month is one figure too: in every format and command the sealed one, whatever comes later; and as of a
moment before the closing what stood then. On the example month."""

from __future__ import annotations

import csv
import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from router.app.budgets import BooksFolders, spent_now
from router.cli.console import ExitCode
from router.ledger.month import Month
from router.prices.data_folders import bills_folder, extract_folder
from router.showback.focus.survey import check_file
from tests.support.month_figures import figures, fill_november, focus_sums, restated, say
from tests.support.new_state import open_state

BILLED, BETWEEN, CLOSING = "2026-12-03T08:00Z", "2026-12-03T08:30Z", "2026-12-03T09:00Z"
RESTATED, LATER = "2026-12-10T08:00Z", "2026-12-11T09:00Z"
CAME_TO = {"USD": Decimal("26750.96325"), "EUR": Decimal("1979.58")}
ADDED = {"USD": Decimal("19963.44")}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """November, closed on the third of December; on the tenth the AWS bill is restated by 500 dollars more, and a
    credit is promised."""
    folder = tmp_path_factory.mktemp("closed")
    home = folder / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPFARE_HOME", str(home))
        fill_november("2026-12-02T10:00Z", BILLED)
        for usd, at in (("11000", "2026-11-01T00:00Z"), ("12000", "2026-11-25T00:00Z")):
            say("budget", "set", usd, "--team", "research", "--from", "2026-11", "--now", at)
        say("budget", "set", "30000", "--all", "--hard", "--from", "2026-11", "--now", "2026-11-01T00:00Z")
        say("ledger", "close", "2026-11", "--now", CLOSING)
        shutil.copytree(home, folder / "before")
        say("bills", "import", restated(folder, "500"), "--now", RESTATED)
        late = folder / "late.yaml"
        late.write_text(
            "entries:\n  - {kind: credit, usd: -99.90, period: 2026-12, reason: promised, corrects: 2026-11}\n"
        )
        say("ledger", "add", late, "--now", "2026-12-10T09:00Z")
    return home


@pytest.fixture
def home(closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(closed, tmp_path / "home")
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path


def _budgets(command: str, at: str, *words: str, code: ExitCode = ExitCode.OK) -> dict[str, dict[str, Any]]:
    options = () if command == "list" else ("--no-notify",)
    text = say("budget", command, "--month", "2026-11", "--now", at, *options, *words, "-o", "json", code=code)
    return {row["name"]: row for row in json.loads(text)["budgets"]}


@pytest.mark.slow
def test_after_a_closing_every_format_and_command_has_the_sealed_figure(home: Path) -> None:
    said = figures("2026-11", LATER, home)
    assert {name: sums for name, sums in said.items() if sums != CAME_TO} == {}
    assert len(said) == 12
    # What came later is December's, everywhere: 500 more on the bill, 99.90 less by the credit.
    said = figures("2026-12", LATER, home)
    assert {name: sums for name, sums in said.items() if sums != {"USD": Decimal("400.10")}} == {}
    assert len(said) == 12


@pytest.mark.slow
def test_a_closed_month_keeps_its_files_and_its_sums_by_team(
    home: Path, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(name: str) -> tuple[bytes, Any, Any]:
        say("ledger", "export", home / name, "--month", "2026-11", "--now", LATER)
        text = say(
            "showback",
            "--month",
            "2026-11",
            "--now",
            LATER,
            "--group-by",
            "team,project",
            "--basis",
            "billed",
            "-o",
            "json",
        )
        reconciled = say("bills", "reconcile", "--month", "2026-11", "--now", LATER, "-o", "json")
        sections = json.loads(text)["sections"]
        return (home / name).read_bytes(), sections["groups"], json.loads(reconciled)["total"]

    after = written("after.csv")
    monkeypatch.setenv("STEPFARE_HOME", str(closed.with_name("before")))
    assert written("before.csv") == after


@pytest.mark.slow
@pytest.mark.parametrize("basis", ["effective", "billed"])
def test_budgets_of_a_closed_month_are_those_of_its_seal(home: Path, basis: str) -> None:
    text = say("showback", "--month", "2026-11", "--now", LATER, "--basis", basis, "-o", "json")
    sections = json.loads(text)["sections"]
    spent = {row["scope"]: row["spent"] for row in sections["budgets"]["rows"]}
    assert spent["all"] == "26750.96325"
    for command in ("check", "list"):
        found = _budgets(command, LATER, "--basis", basis)
        assert {name: row["usd"] for name, row in found.items()} == {"": "30000.00", "research": "12000.00"}
        assert Decimal(found[""]["spent_usd"]) == round(Decimal(spent["all"]), 9)
        assert Decimal(found["research"]["spent_usd"]) == round(Decimal(spent["team research"]), 9)
    if basis == "effective":
        with open_state(home / "home" / "state.db", datetime(2026, 12, 12, tzinfo=UTC)) as store:
            *_, closing = store.periods.closings()
        assert {row["scope"]: row["spent"] for row in closing.sealed["spent"]} == spent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "came_to", "team"), [("2026-12-02T12:00Z", ADDED, "12000.00"), (BETWEEN, CAME_TO, "12000.00")]
)
def test_as_of_before_the_closing_the_month_was_open_and_what_stood_then_counts(
    home: Path, at: str, came_to: dict[str, Decimal], team: str
) -> None:
    said = figures("2026-11", at, home)
    assert {name: sums for name, sums in said.items() if sums != came_to} == {}
    head = json.loads(say("showback", "--month", "2026-11", "--now", at, "-o", "json"))["sections"]["head"]
    rows = {row["name"]: row["value"] for row in head["rows"]}
    assert (rows["books"], "seal" in rows, head["notes"]) == ("open", False, [])
    periods = json.loads(say("ledger", "periods", "--now", at, "-o", "json"))["periods"]
    (november,) = [row for row in periods if row["period"] == "2026-11"]
    assert (november["state"], november["closed_at"], november["seal_hash"]) == ("open", None, None)
    assert "2026-12" not in {row["period"] for row in periods}
    found = _budgets("check", at)
    assert found["research"]["usd"] == team
    assert Decimal(found[""]["spent_usd"]) == came_to["USD"]


@pytest.mark.slow
def test_a_budget_that_was_raised_before_the_closing_is_known_as_of_then(home: Path) -> None:
    assert _budgets("list", "2026-11-20T12:00Z")["research"]["usd"] == "11000.00"
    assert _budgets("list", BETWEEN)["research"]["usd"] == "12000.00"
    assert _budgets("list", LATER)["research"]["usd"] == "12000.00"


@pytest.mark.slow
def test_as_of_after_the_closing_corrections_count_from_their_day_on(home: Path) -> None:
    for at, december, notes in (
        ("2026-12-05T00:00Z", {}, []),
        ("2026-12-10T08:30Z", {"USD": Decimal(500)}, ["corrections of +500.00 USD dated 2026-12-10 stand in 2026-12"]),
        (LATER, {"USD": Decimal("400.10")}, ["corrections of +400.10 USD dated 2026-12-10 stand in 2026-12"]),
    ):
        said = figures("2026-12", at, home)
        assert {name: sums for name, sums in said.items() if sums != december} == {}, at
        head = json.loads(say("showback", "--month", "2026-11", "--now", at, "-o", "json"))["sections"]["head"]
        assert head["notes"] == notes
        assert focus_sums(home / "all.csv", period="2026-11") == CAME_TO


@pytest.mark.slow
def test_plans_are_held_to_what_corrections_come_to_as_well(home: Path) -> None:
    """December has no bill of its own, only a correction of November."""
    now = datetime(2026, 12, 11, 9, tzinfo=UTC)
    with open_state(home / "home" / "state.db", now) as store:
        spent = spent_now(store, Month(2026, 12), now, BooksFolders(extract_folder(), bills_folder()))
    assert {whose: str(usd) for whose, usd in spent.items() if usd.nanos} == {
        ("speech", "asr"): "500.00",
        ("", None): "-99.90",
    }


def test_corrections_in_a_focus_file_keep_its_rules_and_come_back_from_it(home: Path) -> None:
    path = home / "december.csv"
    say("ledger", "export", path, "--month", "2026-12", "--now", LATER)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    corrections = [row for row in rows if row["ChargeCategory"] != "Credit"]
    assert corrections
    for row in corrections:
        assert (row["ChargeClass"], row["BillingPeriodStart"][:7], row["ChargePeriodStart"][:7]) == (
            "Correction",
            "2026-12",
            "2026-11",
        )
        assert (json.loads(row["Tags"])["team"], row["x_RecordState"]) == ("speech", "Invoiced")
        assert "in the place of bill-" in row["ChargeDescription"]
    assert check_file(path).counts == {}
    text = say("showback", "--month", "2026-12", "--from-file", path, "--now", LATER, "-o", "json")
    (total,) = json.loads(text)["sections"]["totals"]["rows"]
    assert Decimal(total["effective"]) == Decimal("400.10")
