"""A closed month does not change: what its report was made from is sealed, and what comes later is a dated correction
in an open month, shown in both. On the example month."""

from __future__ import annotations

import json
import shutil
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from router.cli.console import ExitCode
from router.ledger.month import Month
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.state.periods import compare_closings
from tests.support.command import run
from tests.support.month_figures import BILLS, fill_november, restated
from tests.support.new_state import open_state

CLOSING = "2026-12-03T09:00:00Z"
LATER = "2026-12-11T09:00:00Z"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example month with its bills and a budget, closed on the third of December; and beside it the same month as
    it was before that."""
    home = tmp_path_factory.mktemp("closed") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPFARE_HOME", str(home))
        fill_november("2026-12-02T09:00Z", "2026-12-03T08:00Z")
        fine(run("budget", "set", "12000", "--team", "research", "--from", "2026-11", "--now", CLOSING))
        shutil.copytree(home, home.with_name("open"))
        done = fine(run("ledger", "close", "2026-11", "--now", CLOSING))
        assert "26,750.96 USD" in done.stderr
    return home


@pytest.fixture
def home(closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(closed, tmp_path / "home")
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def fine(done: Result) -> Result:
    assert done.exit_code == ExitCode.OK, done.stderr
    return done


def take(path: Path, at: str = "2026-12-10T08:00:00Z") -> Result:
    return fine(run("bills", "import", path, "--now", at))


def report(month: str, at: str = LATER, **said: Any) -> dict[str, Any]:
    options = [word for name, value in said.items() for word in (f"--{name}", value)]
    done = fine(run("showback", "--month", month, "--now", at, "-o", "json", *options))
    found: dict[str, Any] = json.loads(done.stdout)["sections"]
    return found


def total(sections: dict[str, Any], currency: str = "USD") -> Decimal:
    rows = [row for row in sections["totals"]["rows"] if row["currency"] == currency]
    return sum((Decimal(row["effective"]) for row in rows), Decimal(0))


def corrected(sections: dict[str, Any]) -> Decimal:
    return sum((Decimal(row["effective"] or 0) for row in sections["corrections"]["rows"]), Decimal(0))


@pytest.mark.slow
def test_a_restated_bill_is_a_dated_correction_in_the_open_month(
    home: Path, closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = report("2026-11")
    told = take(restated(tmp_path, "500"))
    assert "a correction of +500.00 USD, dated 2026-12-10, stands in 2026-12" in " ".join(told.stderr.split())
    november, december = report("2026-11"), report("2026-12")
    assert november["head"].pop("notes") == ["corrections of +500.00 USD dated 2026-12-10 stand in 2026-12"]
    assert before["head"].pop("notes") == []
    assert november == before
    assert total(november) == Decimal("26750.96325")
    assert total(december) == corrected(december) == 500
    for row in december["corrections"]["rows"]:
        assert (row["corrects"], row["team"], row["recorded_at"]) == ("2026-11", "speech", "2026-12-10T08:00:00Z")
        assert "in the place of bill-" in row["reason"]
    fine(run("ledger", "verify"))
    (entry,) = [
        each for each in json.loads(run("audit", "-o", "json").stdout)["entries"] if each["what"] == "bills correction"
    ]
    assert entry["details"]["period"] == "2026-12"
    # Together they are what the month would be if nobody had closed it.
    monkeypatch.setenv("STEPFARE_HOME", str(shutil.copytree(closed.with_name("open"), tmp_path / "open")))
    take(restated(tmp_path, "500"))
    assert total(report("2026-11")) == total(november) + corrected(december)


@pytest.mark.slow
def test_the_trend_has_sealed_months_as_they_were_closed(home: Path, tmp_path: Path) -> None:
    take(restated(tmp_path, "500"))
    costs: list[tuple[Any, ...]] = []
    for asked in ("2026-11", "2026-12"):
        rows = [row for row in report(asked)["months"]["rows"] if row["currency"] == "USD"]
        costs = [(row["month"], row["cost"], row["sealed"]) for row in rows]
        assert costs[:2] == [("2026-10", "5158.23", True), ("2026-11", "26750.96325", True)]
    assert costs[2:] == [("2026-12", "500", False)]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "markdown", "html", "csv"])
def test_each_format_gives_the_sealed_figures_and_the_note(form: str, home: Path, tmp_path: Path) -> None:
    ask = ("showback", "--month", "2026-11", "--now", LATER, "-o", form)
    before = fine(run(*ask)).stdout
    take(restated(tmp_path, "500"))
    after = fine(run(*ask)).stdout
    new = set(after.splitlines()) - set(before.splitlines())
    assert "corrections of +500.00 USD dated 2026-12-10 stand in 2026-12" in " ".join(after.split())
    assert set(before.splitlines()) <= set(after.splitlines())
    assert len(new) == 1


@pytest.mark.slow
def test_files_for_programs_give_the_sealed_figures(home: Path, tmp_path: Path) -> None:
    def written(number: int) -> tuple[list[Any], bytes]:
        ask = ("showback", "--month", "2026-11", "--now", LATER)
        fine(run(*ask, "-o", "parquet", "--out", tmp_path / f"{number}.parquet"))
        fine(run(*ask, "-o", "focus", "--out", tmp_path / f"{number}.csv"))
        rows = pq.read_table(tmp_path / f"{number}.parquet").to_pylist()
        return [row for row in rows if row["section"] != "notes"], (tmp_path / f"{number}.csv").read_bytes()

    before = written(1)
    take(restated(tmp_path, "500"))
    assert written(2) == before


@pytest.mark.slow
def test_a_bill_taken_away_and_brought_back_comes_to_nothing(home: Path) -> None:
    listed = json.loads(run("bills", "list", "-o", "json").stdout)["bills"]
    aws = next(each for each in listed if each["account"] == "111122223333")
    before = total(report("2026-11"))
    fine(run("bills", "remove", aws["id"], "--reason", "not ours", "--now", "2026-12-04T08:00Z"))
    gone = corrected(report("2026-12"))
    assert gone < -1000
    fine(run("bills", "restore", aws["id"], "--now", "2026-12-05T08:00Z"))
    assert corrected(report("2026-12")) == 0
    november = report("2026-11")
    assert total(november) == before
    assert "come to nothing" in " ".join(november["head"]["notes"])
    fine(run("ledger", "verify"))


@pytest.mark.slow
def test_a_correction_is_sealed_with_the_month_it_stands_in(home: Path, tmp_path: Path) -> None:
    take(restated(tmp_path, "500"))
    fine(run("ledger", "close", "2026-12", "--now", "2027-01-04T09:00Z"))
    take(restated(tmp_path, "700"), "2027-01-10T08:00:00Z")
    later = "2027-01-11T09:00:00Z"
    december = report("2026-12", later)
    assert total(december) == corrected(december) == 500
    assert corrected(report("2027-01", later)) == 200
    notes = report("2026-11", later)["head"]["notes"]
    assert notes == [
        "corrections of +500.00 USD dated 2026-12-10 stand in 2026-12",
        "corrections of +200.00 USD dated 2027-01-10 stand in 2027-01",
    ]
    fine(run("ledger", "verify"))


@pytest.mark.slow
def test_what_people_add_later_is_noted_too(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "late.yaml"
    path.write_text("entries:\n  - {kind: credit, usd: -99.90, period: 2026-12, reason: promised, corrects: 2026-11}\n")
    fine(run("ledger", "add", path, "--now", "2026-12-08T09:00Z"))
    november = report("2026-11")
    assert november["head"]["notes"] == ["corrections of -99.90 USD dated 2026-12-08 stand in 2026-12"]
    assert total(november) == Decimal("26750.96325")


@pytest.mark.slow
def test_a_bill_that_came_while_the_state_was_away_is_booked_by_the_report(home: Path, tmp_path: Path) -> None:
    at = datetime(2026, 12, 10, 8, tzinfo=UTC)
    import_bills([restated(tmp_path, "500")], BillStore(home / "bills"), at)
    assert corrected(report("2026-12")) == 500
    assert corrected(report("2026-12")) == 500
    assert total(report("2026-11")) == Decimal("26750.96325")


def listed(month: str) -> Decimal:
    """Dollars of the entries in the books of a month that are no plans."""
    found = fine(run("ledger", "list", "--month", month, "-o", "json"))
    entries = json.loads(found.stdout)["entries"]
    return sum((Decimal(entry["usd"]) for entry in entries if entry["kind"] != "planned"), Decimal(0))


@pytest.mark.slow
def test_of_an_open_month_the_list_comes_to_the_report_and_a_refund_is_that_month_s_own(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bills all that was spent is in the ledger. A refund corrects a closed month only where it says so."""
    home = Path(shutil.copytree(closed.with_name("open"), tmp_path / "open"))
    shutil.rmtree(home / "bills")
    monkeypatch.setenv("STEPFARE_HOME", str(home))
    before = report("2026-11", "2026-12-02T10:00:00Z")
    assert listed("2026-11") == total(before) > 0
    refunds = tmp_path / "refunds.yaml"
    refunds.write_text(
        """
entries:
  - {kind: credit, usd: -100.01, period: 2026-11, reason: refund of an outage, team: research}
  - {kind: credit, usd: -40, period: 2026-11, reason: refund of October, team: research, corrects: 2026-10}
""",
        encoding="utf-8",
    )
    fine(run("ledger", "add", refunds, "--now", "2026-12-02T09:30:00Z"))
    after = report("2026-11", "2026-12-02T10:00:00Z")
    assert listed("2026-11") == total(after) == total(before) - Decimal("140.01")
    assert corrected(after) == corrected(before) - 40
    reasons = {row["reason"]: row["corrects"] for row in after["corrections"]["rows"]}
    assert (reasons.get("refund of October"), reasons.get("refund of an outage")) == ("2026-10", None)
    assert total(report("2026-10", "2026-12-02T10:00:00Z")) == listed("2026-10")


def cut_off(path: Path) -> None:
    """As a disk that was full leaves a file."""
    path.write_bytes(path.read_bytes()[:300])


def of_december(tmp_path: Path) -> Path:
    path = tmp_path / "december.csv"
    text = BILLS[0].read_text(encoding="utf-8").replace("2026-12-", "2027-01-").replace("2026-11-", "2026-12-")
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("what", ["later bill", "correction", "restated bill that is not booked yet"])
def test_a_closed_month_stays_readable_where_what_was_stored_later_is_not(
    home: Path, tmp_path: Path, what: str
) -> None:
    """An open month would lack money, and is refused; the message names the bill, and what takes it out."""
    later = what == "later bill"
    take(of_december(tmp_path) if later else restated(tmp_path, "500"), "2027-01-03T08:00:00Z")
    bill = json.loads(run("bills", "list", "-o", "json").stdout)["bills"][-1]["id"]
    before = report("2026-11", "2027-01-04T00:00:00Z")
    if what == "correction":
        (damaged,) = (home / "bills" / "corrections").glob("*.parquet")
        says, remedy = str(damaged), "bring the folder of the bills back from a backup"
    else:
        *_, damaged = sorted((home / "bills" / "parquet").glob("*.parquet"))
        says, remedy = bill, f"stepfare bills remove {bill} --reason WHY takes it out"
        shutil.rmtree(home / "bills" / "corrections", ignore_errors=True)
    cut_off(damaged)
    done = fine(run("showback", "--month", "2026-11", "--now", "2027-01-04T00:00:00Z", "-o", "json"))
    november = json.loads(done.stdout)["sections"]
    told = " ".join(f"{done.stderr} {november['head'].pop('notes')}".split())
    assert (says in told, remedy in told) == (True, True), told
    before["head"].pop("notes")
    assert november == before
    refused = run("showback", "--month", "2026-12" if later else "2027-01", "--now", "2027-01-04T00:00:00Z")
    assert refused.exit_code == ExitCode.INVALID_INPUT
    told = " ".join(refused.stderr.split())
    assert (says in told, remedy in told) == (True, True), told


@pytest.mark.slow
def test_a_part_of_the_extract_that_cannot_be_read_is_made_again(home: Path) -> None:
    """It holds nothing that the ledger does not."""
    before = report("2026-11")
    (part, *_) = sorted((home / "extract").rglob("month=2026-11/*.facts.parquet"))
    cut_off(part)
    assert report("2026-11") == before


def test_budgets_of_a_closed_month_stay(home: Path) -> None:
    before = fine(run("budget", "list", "--month", "2026-11", "-o", "json")).stdout
    for command in (("set", "1"), ("remove",)):
        for since in ("2026-11", "2026-10"):
            if command == ("remove",) and since == "2026-10":
                continue  # none holds there
            refused = run("budget", *command, "--team", "research", "--from", since)
            assert refused.exit_code == ExitCode.FAILURE
            told = " ".join(refused.stderr.split())
            assert "the books of 2026-11 are closed" in told
            assert "`--from 2026-12`" in told
    assert fine(run("budget", "list", "--month", "2026-11", "-o", "json")).stdout == before
    fine(run("budget", "set", "13000", "--team", "research", "--from", "2026-12"))
    fine(run("ledger", "verify"))


def test_verify_looks_at_bills_budgets_and_the_seal(home: Path) -> None:
    done = fine(run("ledger", "verify"))
    assert "3 bills, 1 budget and the report are those" in done.stderr
    (path, *_) = sorted((home / "bills" / "parquet").glob("*.parquet"))
    whole = path.read_bytes()
    path.write_bytes(whole + b" ")
    refused = run("ledger", "verify")
    assert (refused.exit_code, "has other rows now" in refused.stderr) == (ExitCode.FAILURE, True)
    path.unlink()
    assert "is gone" in run("ledger", "verify").stderr
    path.write_bytes(whole)
    fine(run("ledger", "verify"))
    with sqlite3.connect(home / "state.db") as database:
        database.execute("UPDATE budgets SET usd_nanos = 1")
    refused = run("ledger", "verify")
    assert (refused.exit_code, "budgets of 2026-11 are not those" in refused.stderr) == (ExitCode.FAILURE, True)
    with sqlite3.connect(home / "state.db") as database:
        database.execute("DROP TRIGGER ledger_periods_keeps_rows")
        database.execute("UPDATE ledger_periods SET seal = replace(seal, 'bill-', 'bill+')")
    assert "the seal of 2026-11 is not what was written" in run("ledger", "verify").stderr


def test_the_report_is_made_again_and_compared(home: Path) -> None:
    """Whoever writes a seal anew, with its hash, cannot make the rows say it."""
    from router.state.periods import PeriodClosing, hash_seal

    with open_state(home / "state.db", datetime(2026, 12, 4, tzinfo=UTC)) as store:
        *_, closing = store.periods.closings()
    other = closing.seal.replace(closing.sealed["report"], "0" * 64)
    forged = PeriodClosing(closing.period, closing.closed_at, closing.who, closing.head, closing.hash, other)
    with sqlite3.connect(home / "state.db") as database:
        database.execute("DROP TRIGGER ledger_periods_keeps_rows")
        database.execute(
            "UPDATE ledger_periods SET seal = ?, seal_hash = ? WHERE period = '2026-11'",
            (other, hash_seal(forged, "0" * 64)),
        )
    refused = run("ledger", "verify")
    assert refused.exit_code == ExitCode.FAILURE
    assert "the report of 2026-11 is made from other rows than it was closed with" in refused.stderr


def test_a_closing_that_was_deleted_is_found(home: Path) -> None:
    """The month would be open again, and nothing else would say so."""
    with sqlite3.connect(home / "state.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            if name.startswith("ledger_periods"):
                database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM ledger_periods WHERE period = '2026-11'")
    for words in (("ledger", "verify"), ("audit",)):
        refused = run(*words)
        assert refused.exit_code == ExitCode.FAILURE
        said = " ".join(refused.stderr.split())
        assert "closed 2026-11 on" in said
        assert "its closing is gone: the month is open again" in said


def remove_closing(home: Path, month: str) -> None:
    """As the owner of the database may: from both tables, without their triggers."""
    with sqlite3.connect(home / "state.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            if name.startswith(("ledger_periods", "audit_log")):
                database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM ledger_periods WHERE period = ?", (month,))
        database.execute(
            "DELETE FROM audit_log WHERE what = 'ledger close' AND json_extract(details, '$.period') = ?", (month,)
        )


def test_a_closing_that_was_deleted_with_its_audit_record_is_found_by_later_entries(home: Path, tmp_path: Path) -> None:
    """Each entry names the closing that it was written after, and its hash covers the name."""
    late = tmp_path / "late.yaml"
    late.write_text("entries:\n  - {kind: fee, usd: 5, period: 2026-12, reason: support}\n")
    fine(run("ledger", "add", late, "--now", LATER))
    fine(run("ledger", "verify"))
    remove_closing(home, "2026-11")
    refused = run("ledger", "verify")
    said = " ".join(refused.stderr.split())
    assert refused.exit_code == ExitCode.FAILURE
    assert "was written after 2026-11 was closed, and that closing is gone or changed" in said


def test_a_closing_in_place_of_a_deleted_one_is_found_by_later_entries(home: Path, tmp_path: Path) -> None:
    """It has another seal than the one that the entry names."""
    late = tmp_path / "late.yaml"
    late.write_text("entries:\n  - {kind: fee, usd: 5, period: 2026-12, reason: support}\n")
    fine(run("ledger", "add", late, "--now", LATER))
    remove_closing(home, "2026-11")
    with open_state(home / "state.db", datetime(2026, 12, 11, tzinfo=UTC)) as store:
        store.periods.close(Month(2026, 11), who="eve", at=datetime(2026, 12, 11, tzinfo=UTC), seal={"version": 1})
        (found, *_) = store.ledger.verify().problems
    assert "was written after 2026-11 was closed, and that closing is gone or changed" in found


def test_a_closing_that_the_audit_log_does_not_know_is_noted(home: Path) -> None:
    """As after a backup was restored, whose state has an audit log of its own."""
    with open_state(home / "state.db", datetime(2026, 12, 4, tzinfo=UTC)) as store:
        found = compare_closings(store.periods.closings(), ())
    assert found.problems == ()
    assert [note.partition(" by ")[0] for note in found.notes] == [
        "2026-10 stands as closed",
        "2026-11 stands as closed",
    ]


def test_a_month_that_is_not_over_at_now_is_not_closed(home: Path) -> None:
    refused = run("ledger", "close", "2026-12", "--now", "2026-12-31T23:59:59Z")
    assert (refused.exit_code, "2026-12 is not over" in refused.stderr) == (ExitCode.FAILURE, True)
    fine(run("ledger", "close", "2026-12", "--now", "2027-01-02T00:00Z"))
    rows = json.loads(run("ledger", "periods", "-o", "json").stdout)["periods"]
    (december,) = [row for row in rows if row["period"] == "2026-12"]
    assert december["closed_at"].startswith("2027-01-02T00:00:00")
