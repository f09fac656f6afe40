"""``stepfare showback``: streams, formats, exit codes, the ledger and bills beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pricing.money import Usd
from router.cli.console import ExitCode
from router.ledger.entry import LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.showback.focus.charge_files import write_csv
from router.showback.focus.survey import check_file
from router.state.store import StateStore
from tests.support.command import run
from tests.support.golden_charges import golden_charges
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, attempt, entry

NOW = "2026-11-25T12:00:00Z"
MOMENT = datetime(2026, 11, 25, 12, tzinfo=UTC)
FIRST = datetime(2026, 11, 3, 10, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    return folder


@pytest.fixture
def store(home: Path) -> Iterator[StateStore]:
    with open_state(home / "state.db", MOMENT) as opened:
        yield opened


def hour(number: int, usd: str, use: MachineUse = MachineUse.WORK, **said: Any) -> LedgerEntry:
    start = said.pop("start", FIRST + number * HOUR)
    return entry(f"m{number}", rank=0, start=start, end=start + HOUR, usd=Usd.parse(usd), use=use, **said)


def a_month() -> list[LedgerEntry]:
    """Research: 10 + 20 + 30, of which 20 are lost; product 40; a fee of 5 that is nobody's."""
    fee = entry(
        "fee",
        kind=LedgerEntryKind.FEE,
        who="ada",
        reason="support",
        usd=Usd.parse("5"),
        team="",
        job="",
        attempt="",
        gang="",
        plan="",
        start=FIRST,
        end=FIRST + HOUR,
        cloud="aws",
    )
    return [
        hour(0, "10", steps=400),
        hour(1, "20", MachineUse.RESTART_LOST_WORK),
        hour(2, "30", steps=600),
        hour(3, "40", team="product", job="other", attempt="b1"),
        fee,
    ]


def showback(*more: object) -> Result:
    return run("showback", "--month", "2026-11", "--now", NOW, *more)


def parsed(*more: object) -> Any:
    result = showback("-o", "json", *more)
    assert result.exit_code == ExitCode.OK, result.stderr
    return json.loads(result.stdout)["sections"]


def by_team(sections: Any) -> dict[str, str]:
    return {row["team"]: row["billed"] for row in sections["groups"]["rows"]}


def test_a_month_of_the_ledger(store: StateStore) -> None:
    store.ledger.append(a_month(), after=0)
    sections = parsed()
    assert by_team(sections) == {"research": "60", "product": "40", "__unallocated__": "5"}
    (total,) = sections["totals"]["rows"]
    assert (total["billed"], total["facts"], total["estimated_share"]) == ("105", 5, "0.952380952")  # not the fee
    job = next(row for row in sections["jobs"]["rows"] if row["job"] == "llama")
    assert (job["per_1000_steps"], job["per_accelerator_hour"], job["waste"]) == ("60", "2.5", "20")
    head = {row["name"]: row["value"] for row in sections["head"]["rows"]}
    assert head["made_from"] == "ledger of 5 entries"
    assert head["books"] == "open"


def test_what_is_new_is_read_and_what_was_is_not_lost(store: StateStore) -> None:
    store.ledger.append(a_month()[:2], after=0)
    assert by_team(parsed()) == {"research": "30"}
    store.ledger.append(a_month()[2:], after=2)
    assert by_team(parsed()) == {"research": "60", "product": "40", "__unallocated__": "5"}


def test_a_closed_month_says_the_same_after_it_was_archived(store: StateStore, tmp_path: Path, home: Path) -> None:
    october = datetime(2026, 10, 5, tzinfo=UTC)
    store.ledger.append([hour(9, "70", start=october), hour(1, "1")], after=0)
    store.periods.close(Month(2026, 10), who="ada", at=MOMENT)
    wanted = run("showback", "--month", "2026-10", "--now", NOW, "-o", "csv")
    assert "70" in wanted.stdout
    assert wanted.stderr == ""
    store.archives.archive(Month(2026, 11), tmp_path / "old.gz", who="ada", at=MOMENT)
    after = run("showback", "--month", "2026-10", "--now", NOW, "-o", "csv")
    assert after.stdout == wanted.stdout
    import shutil

    shutil.rmtree(home / "extract")
    without = run("showback", "--month", "2026-10", "--now", NOW)
    assert without.exit_code == ExitCode.OK
    assert "1 entries of 2026-10 were archived to old.gz" in without.stderr
    again = run("showback", "--month", "2026-10", "--now", NOW, "-o", "csv", "--archive", tmp_path / "old.gz")
    assert (again.stdout, again.stderr) == (wanted.stdout, "")


def test_a_bill_takes_the_place_of_what_was_metered(store: StateStore, tmp_path: Path) -> None:
    """The bill has the first hour of whisper-ft's machine i-a1 at 20; the meter said 19 of it and of another 11."""
    start = datetime(2026, 11, 3, tzinfo=UTC)
    store.ledger.append(
        [
            entry(
                "k1",
                job="whisper-ft",
                team="speech",
                attempt="1",
                start=start,
                end=start + timedelta(minutes=15),
                usd=Usd.parse("4"),
                use=MachineUse.STARTUP,
                resource="i-a1",
                machines=1,
            ),
            entry(
                "k2",
                job="later",
                team="speech",
                attempt="9",
                start=start + 20 * HOUR,
                end=start + 21 * HOUR,
                usd=Usd.parse("11"),
                use=MachineUse.WORK,
                resource="i-new",
                machines=1,
            ),
        ],
        after=0,
    )
    path = tmp_path / "bill.csv"
    write_csv(path, [golden_charges()[1]], "1.4")  # i-a1, 00:00 to 00:15, 5 dollars
    assert run("bills", "import", path, "--now", NOW).exit_code == ExitCode.OK
    sections = parsed()
    assert by_team(sections) == {"speech": "16"}
    jobs = {row["job"]: row["billed"] for row in sections["jobs"]["rows"]}
    assert jobs == {"whisper-ft": "5", "later": "11"}
    (total,) = sections["totals"]["rows"]
    assert total["billed"] == "16"
    assert sections["variance"]["rows"] != []
    head = {row["name"]: row["value"] for row in sections["head"]["rows"]}
    assert head["bills_through"] == "2026-11-03T00:15:00Z"


def test_the_smallest_amounts_of_a_bill_count_beside_a_ledger(store: StateStore, tmp_path: Path) -> None:
    """Thirty rows of 4e-10 are 1.2e-8, which was lost where the ledger, of nine places, has an entry."""
    store.ledger.append([hour(0, "10")], after=0)
    tiny = Decimal("0.0000000004")
    costs: dict[str, Any] = dict.fromkeys(("billed_cost", "effective_cost", "list_cost", "contracted_cost"), tiny)
    rows = [replace(golden_charges()[1], resource_id=f"i-{n}", invoice_detail_id=None, **costs) for n in range(30)]
    path = tmp_path / "bill.csv"
    write_csv(path, rows, "1.4")
    assert run("bills", "import", path, "--now", NOW).exit_code == ExitCode.OK
    sections = parsed()
    (total,) = sections["totals"]["rows"]
    assert Decimal(total["billed"]) == Decimal("10.000000012")
    assert Decimal(sections["days"]["rows"][-1]["sum"]) == Decimal("10.000000012")


def test_the_plan_of_a_job_counts_whole_once_it_has_ended(store: StateStore) -> None:
    """An hour of a plan of four for 8 dollars has passed: 2 are planned; once the job finishes, all 8 are."""
    start = MOMENT - HOUR
    planned = entry("p", kind=LedgerEntryKind.PLANNED, start=start, end=start + 4 * HOUR, usd=Usd.parse("8"), rank=None)
    store.ledger.append([planned], after=0)
    running = attempt(created_at=start, start=start, end=start + 4 * HOUR)
    store.attempts.add(running, ())
    assert parsed()["jobs"]["rows"][0]["planned"] == "2"
    store.attempts.change(running, result="finished", result_at=MOMENT)
    assert parsed()["jobs"]["rows"][0]["planned"] == "8"
    periods = json.loads(run("ledger", "periods", "--now", NOW, "-o", "json").stdout)["periods"]
    assert Decimal(periods[0]["planned_usd"]) == 8


@pytest.mark.slow
def test_open_months_long_before_stand_beside_the_month(store: StateStore, tmp_path: Path) -> None:
    """Two of them by the sums of the extract, and the same once a bill of this month stands, and they are matched."""
    early = [hour(n, f"{n}", start=datetime(2026, n, 5, tzinfo=UTC)) for n in (6, 7, 10)]
    store.ledger.append([*early, hour(0, "10")], after=0)
    wanted = [("2026-06", "6"), ("2026-07", "7"), ("2026-10", "10"), ("2026-11", "10")]
    assert [(row["month"], row["cost"]) for row in parsed()["months"]["rows"]] == wanted
    path = tmp_path / "bill.csv"
    write_csv(path, [replace(golden_charges()[1], resource_id="i-other")], "1.4")
    assert run("bills", "import", path, "--now", NOW).exit_code == ExitCode.OK
    wanted[-1] = ("2026-11", "15")
    assert [(row["month"], row["cost"]) for row in parsed()["months"]["rows"]] == wanted


def test_focus_files_need_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "november.csv"
    write_csv(path, golden_charges(), "1.4")
    assert by_team(parsed("--from-file", path))["vision"] == "276.66666665"
    twice = tmp_path / "same.csv"
    twice.write_bytes(path.read_bytes())
    refused = showback("--from-file", path, "--from-file", twice)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    assert "given twice" in refused.stderr
    other = run("showback", "--month", "2026-09", "--from-file", path, "--now", NOW)
    assert "have nothing in the books of 2026-09: 2026-11" in other.stderr


@pytest.mark.parametrize("form", ["html", "csv", "json", "markdown", "table", "wide", "xlsx", "parquet"])
def test_every_format_goes_to_a_file(store: StateStore, tmp_path: Path, form: str) -> None:
    store.ledger.append(a_month(), after=0)
    file = tmp_path / f"november.{form}"
    done = showback("-o", form, "--out", file)
    assert (done.exit_code, done.stdout, done.stderr) == (ExitCode.OK, "", "")
    assert file.stat().st_size > 500
    assert list(tmp_path.glob(".*.part")) == []


def test_the_charges_of_the_month_as_focus(store: StateStore, tmp_path: Path) -> None:
    store.ledger.append(a_month(), after=0)
    file = tmp_path / "november.csv"
    assert showback("-o", "focus", "--out", file).exit_code == ExitCode.OK
    assert check_file(file).total == 0
    assert by_team(parsed("--from-file", file)) == {"research": "60", "product": "40", "__unallocated__": "5"}


def test_earlier_names_of_options_are_read(store: StateStore, tmp_path: Path) -> None:
    store.ledger.append(a_month(), after=0)
    assert parsed("--by", "job") == parsed("--group-by", "job")
    file = tmp_path / "november.csv"
    assert showback("-o", "focus", "--out", file).exit_code == ExitCode.OK
    assert by_team(parsed("--from", file)) == by_team(parsed("--from-file", file))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "xlsx"), "--out"),
        (("-o", "focus"), "--out november.csv"),
        (("--group-by", "colour"), "--group-by: 'colour' is no group"),
        (("--by", "colour"), "--group-by: 'colour' is no group"),
        (("--share-idle", "fixed"), "names no parts"),
        (("--share", "a=0.5"), "--share-idle fixed"),
        (("--share-idle", "fixed", "--share", "a=0.7", "--share", "b=0.7"), "of 1 together"),
        (("--share-idle", "fixed", "--share", "a"), "no part of 1"),
        (("--from-file", "nothing.csv"), "nothing.csv"),
        (("--out", "/nowhere/at/all.txt"), "no folder"),
    ],
    ids=[
        "xlsx",
        "focus",
        "group",
        "group-as-before",
        "no-parts",
        "part-alone",
        "too-much",
        "no-part",
        "no-file",
        "no-folder",
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(arguments: tuple[str, ...], said: str) -> None:
    result = showback(*arguments)
    assert result.exit_code in (ExitCode.INVALID_INPUT, ExitCode.FAILURE)
    assert result.stdout == ""
    assert said in result.stderr


def test_month_is_that_of_now_and_an_empty_ledger_is_said(home: Path) -> None:
    result = run("showback", "--now", NOW)
    assert result.exit_code == ExitCode.OK
    assert result.stdout.startswith("Showback 2026-11\nNothing is spent")
    assert "ledger of 0 entries" in run("showback", "--now", NOW, "-o", "wide").stdout
    assert not (home / "state.db").exists()


@pytest.mark.slow
def test_the_parts_of_any_grouping_are_the_whole(store: StateStore) -> None:
    store.ledger.append(a_month(), after=0)
    for by in ("team", "job", "cloud,team", "market,use", "accelerator,what,category", "team,project,cost_center,job"):
        for share in ("none", "even", "weighted"):
            rows = parsed("--group-by", by, "--share-idle", share)["groups"]["rows"]
            for column in ("billed", "effective", "after"):
                assert sum(Decimal(row[column]) for row in rows) == 105, (by, share, column)
