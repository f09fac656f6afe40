"""The ledger as a FOCUS file: as a person writes it, and as others' checkers and our own import read it."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from unittest import mock

import pytest
from focus_data_toolkit.cli import main as toolkit
from focus_data_toolkit.model import lint_focus_1_4_structure

from router.showback.accounts import Showback
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.showback.export import export_focus
from router.showback.focus.charge_files import write_csv, write_parquet
from router.showback.focus.survey import check_file
from router.showback.focus_from_ledger import ClosedBooks, charges_of_entries
from router.state.errors import StateError
from router.state.ledger_rows import Row
from router.state.ledger_store import LedgerStore
from router.state.ledger_table import read_rows_after
from tests.support.books_steps import SEPTEMBER, of
from tests.support.charge_files import read_charges
from tests.support.focus_tools import official_verdict
from tests.support.forked import run_forked
from tests.support.metered_month import ACCOUNTS, OCTOBER, month
from tests.support.new_state import open_state
from tests.support.repository import ROOT
from tests.support.state_values import NOW

ALLOWED = ROOT / "tests" / "golden" / "focus" / "validator_allowed.csv"
SHOWBACK = """\
# yaml-language-server: $schema=docs/schema/showback.json
accounts:
  aws: {billing_account_id: "111122223333", billing_account_type: Payer Account, provider: AWS}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The month as it came about: October's books were closed before its last machine was metered."""
    folder = tmp_path_factory.mktemp("home")
    with open_state(folder / "state.db", NOW) as store:
        store.periods.close(OCTOBER, who="anna", at=datetime(2026, 11, 2, tzinfo=UTC))
        store.ledger.add(month())
    return folder


def run(home: Path, *arguments: object, code: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "COLUMNS": "80", "STEPFARE_HOME": str(home)}
    done = run_forked(("ledger", "export", *arguments), environment=known, folder=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_month_as_a_person_exports_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "showback.yaml").write_text(SHOWBACK, encoding="utf-8")
    wanted = ("--month", "2026-11", "--accounts", tmp_path / "showback.yaml")
    done = run(home, tmp_path / "november.csv", *wanted, "--now", "2026-11-30T00:00Z")
    assert f"{tmp_path / 'november.csv'}: 19 charges, FOCUS 1.4" in done.stderr
    assert "left out, for nobody knows its price: disk, 2 entries, 1,600.00 GiB-Hours" in done.stderr
    assert "2026-11 is not over" in done.stderr
    found = rows(tmp_path / "november.csv")
    assert len(found) == 19
    assert {row["BillingAccountId"] for row in found} == {"111122223333", "__unknown__"}
    assert check_file(tmp_path / "november.csv", OCTOBER.ends).counts == {}
    # The same again is the same, in both forms.
    run(home, tmp_path / "again.csv", *wanted)
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "november.csv").read_bytes()
    run(home, tmp_path / "november.PARQUET", *wanted, "--focus-version", "1.2")
    parquet = check_file(tmp_path / "november.PARQUET", OCTOBER.ends)
    assert (parquet.version, parquet.rows, parquet.counts) == ("1.2", 19, {})
    whole = [charge.billed_cost for charge in read_charges(tmp_path / "november.csv")]
    assert [charge.billed_cost for charge in read_charges(tmp_path / "november.PARQUET")] == whole
    # 384 + 162 + 2.5 + 0 of machines, 0.225 copied, 24 of October; 815 of fees, -60 of credits, 36 - 1.
    assert sum(whole) == Decimal("384") + 162 + Decimal("2.5") + Decimal("0.225") + 24 + 815 - 60 + 35


def test_without_accounts_it_says_so_and_other_months_are_empty(home: Path, tmp_path: Path) -> None:
    done = run(home, tmp_path / "all.csv", "--now", "2027-01-01T00:00Z")
    assert "accounts are written as __unknown__" in done.stderr
    assert {row["BillingAccountId"] for row in rows(tmp_path / "all.csv")} == {"__unknown__"}
    done = run(home, tmp_path / "none.csv", "--month", "2026-09", "--now", "2027-01-01T00:00Z")
    assert "0 charges" in done.stderr
    assert "__unknown__" not in done.stderr
    assert rows(tmp_path / "none.csv") == []


def test_what_is_refused(home: Path, tmp_path: Path) -> None:
    before = tmp_path / "november.csv"
    before.write_text("what was there", encoding="utf-8")
    bad = tmp_path / "showback.yaml"
    bad.write_text("accounts:\n  aws: {billing_account_id: 111122223333}\n", encoding="utf-8")
    assert f"{bad}:2:" in (told := run(home, before, "--accounts", bad, code=2).stderr)
    assert "put it in quotes" in told
    assert "ends neither in .csv nor in .parquet" in run(home, tmp_path / "november.xlsx", code=2).stderr
    assert "no month such as" in run(home, before, "--month", "november", code=2).stderr
    assert "no such file" in run(home, before, "--accounts", tmp_path / "none.yaml", code=2).stderr
    assert "1.3" in run(home, before, "--focus-version", "1.3", code=2).stderr
    assert "cannot be written" in run(home, tmp_path / "none" / "november.csv", code=1).stderr
    assert before.read_text(encoding="utf-8") == "what was there"
    assert {path.name for path in tmp_path.iterdir()} == {"november.csv", "showback.yaml"}


def test_what_is_archived_is_said_to_be_missing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_state(home / "state.db", NOW) as store:
        store.ledger.add([of(9, "s1"), of(11, "n1")])
        store.periods.close(SEPTEMBER, who="anna", at=NOW)
        store.archives.archive(OCTOBER, tmp_path / "old.gz", who="anna", at=NOW)
    wanted = "left out, for they are archived (old.gz): months before 2026-10"
    assert wanted in run(home, tmp_path / "all.csv").stderr
    assert wanted in run(home, tmp_path / "september.csv", "--month", "2026-09").stderr
    assert wanted not in run(home, tmp_path / "november.csv", "--month", "2026-11").stderr


def test_what_was_exported_can_be_imported_once(tmp_path: Path) -> None:
    path, bills = tmp_path / "november.csv", BillStore(tmp_path / "bills")
    write_csv(path, charges_of_entries(month(), ACCOUNTS, ClosedBooks(closed=OCTOBER)))
    done = import_bills([path], bills, NOW)
    assert (done.new, {gap.rule for gap in done.delivery.gaps}) == (True, set())
    assert sum(Decimal(bill.sums["USD"]["BilledCost"] or 0) for bill in done.delivery.bills) == Decimal("1362.725")
    before = {file: file.read_bytes() for file in (tmp_path / "bills").rglob("*") if file.is_file()}
    assert import_bills([path], bills, NOW).new is False
    assert {file: file.read_bytes() for file in (tmp_path / "bills").rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_ends_in_the_middle_leaves_what_was_there(form: str, home: Path, tmp_path: Path) -> None:
    path = tmp_path / f"november.{form}"
    path.write_bytes(b"what was there")
    with open_state(home / "state.db", NOW) as store:
        with mock.patch.object(LedgerStore, "batches", _breaking), pytest.raises(StateError, match="gone"):
            export_focus(store, path, ACCOUNTS, "1.4")
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"what was there"]
        assert export_focus(store, path, ACCOUNTS, "1.4").charges == 19
    assert check_file(path).rows == 19


def _breaking(ledger: LedgerStore, **_: object) -> Iterator[list[Row]]:
    with ledger._database.read() as connection:
        yield read_rows_after(connection, 0, 5, 5)
    raise StateError("the server is gone")


def test_the_other_lint_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "november.csv"
    write_csv(path, charges_of_entries(month(), ACCOUNTS, ClosedBooks(closed=OCTOBER)))
    report = lint_focus_1_4_structure(
        "Cost and Usage",
        list(rows(path)),
        supported_conditions=["SupportsMultiplePricingCategories", "SupportsUnitPricing"],
    )
    assert (report.messages(), report.row_count) == ([], 19)
    assert toolkit(["validate", str(path)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("accounts", [ACCOUNTS, Showback()], ids=["accounts", "none"])
def test_of_the_official_validator_only_known_false_alarms_fail(accounts: Showback, tmp_path: Path) -> None:
    path = tmp_path / "november.parquet"
    write_parquet(path, charges_of_entries(month(), accounts, ClosedBooks(closed=OCTOBER)), "1.2")
    verdict = official_verdict(path)
    allowed = {row["rule"] for row in rows(ALLOWED)}
    assert {rule: said for rule, said in verdict.failed.items() if rule not in allowed} == {}
    assert verdict.passed >= 300
