"""``stepfare bills`` and ``stepfare ledger check``: formats, streams, exit codes, errors with their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from router.cli.console import ExitCode
from router.showback.focus.charge_files import write_csv, write_parquet
from tests.support.charge_files import cell, changed
from tests.support.command import NOW, run
from tests.support.golden_charges import golden_charges


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def november(tmp_path: Path) -> Path:
    path = tmp_path / "november.parquet"
    write_parquet(path, golden_charges(), "1.2")
    return path


def take(*arguments: object) -> Result:
    return run("bills", "import", *arguments, "--now", NOW)


def parsed(result: Result) -> Any:
    assert result.exit_code == ExitCode.OK, result.stderr
    return json.loads(result.stdout)


def test_import_shows_the_bills_and_list_shows_them_again(november: Path) -> None:
    done = take(november)
    assert done.exit_code == ExitCode.OK
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["BILL", "ISSUER", "ACCOUNT", "PERIOD", "ROWS", "BILLED", "REPLACED"]
    assert lines[1].split()[1:] == ["AWS", "111122223333", "2026-11", "35", "646.30", "USD"]
    assert lines[2].split()[1:3] == ["Google", "Cloud"]
    assert lines[3].split()[-2:] == ["215.98", "EUR"]
    assert max(map(len, lines)) <= 80
    assert run("bills", "list").stdout == "\n".join(lines[:4]) + "\n"


def test_import_again_says_that_nothing_changed(november: Path) -> None:
    take(november)
    again = take(november)
    assert again.exit_code == ExitCode.OK
    assert f"nothing changed: this was imported at {NOW}" in again.stderr


def test_a_restated_bill_is_told_and_the_older_one_is_kept(november: Path, tmp_path: Path) -> None:
    take(november)
    later = tmp_path / "later.csv"
    write_csv(later, golden_charges()[:5], "1.2")
    done = parsed(take(later, "--as", "version", "-o", "json"))
    assert done["new"] is True
    replaced = {bill["id"]: bill["replaces"] for bill in done["bills"]}
    assert all(replaced.values())
    listed = parsed(run("bills", "list", "-o", "json"))["bills"]
    everything = parsed(run("bills", "list", "--all", "-o", "json"))["bills"]
    assert (len(listed), len(everything)) == (3, 5)
    assert {bill["id"] for bill in everything if bill["replaced_by"]} == set(replaced.values())


def test_gaps_are_listed_with_their_place(tmp_path: Path) -> None:
    path = changed(tmp_path / "bill.csv", cell("ChargeFrequency", "Usage-based"), version="1.2")
    done = take(path)
    assert "bill.csv:\n  ChargeFrequency 'Usage-based' is not one of its words (line 6)" in done.stdout
    gap = parsed(take(path, "-o", "json"))["gaps"][0]
    assert gap == {
        "file": "bill.csv",
        "rule": "word",
        "column": "ChargeFrequency",
        "count": 1,
        "row": 5,
        "line": 6,
        "value": "'Usage-based'",
    }


def test_show_has_the_exact_sums_and_the_files(november: Path) -> None:
    take(november)
    (aws, *_) = parsed(run("bills", "list", "-o", "json"))["bills"]
    shown = run("bills", "show", aws["id"])
    assert shown.exit_code == ExitCode.OK
    assert "AWS, 111122223333" in shown.stdout
    assert "USD  BilledCost 646.3, EffectiveCost 646.3, ListCost 826.3, ContractedCost 826.3" in shown.stdout
    assert "from november.parquet: FOCUS 1.2, parquet, 60 rows" in shown.stdout
    record = parsed(run("bills", "show", aws["id"][5:10], "-o", "json"))
    assert (record["whole"], record["sums"]["USD"]["BilledCost"]) == (True, "646.3")
    Path(record["parquet"]).write_bytes(b"PAR1")
    damaged = run("bills", "show", aws["id"])
    assert damaged.exit_code == ExitCode.FAILURE
    assert "not those that were stored" in damaged.stderr


def test_no_bill_yet() -> None:
    assert "no bill is stored" in run("bills", "list").stderr
    assert parsed(run("bills", "list", "-o", "json"))["bills"] == []
    none = run("bills", "show", "abcdef")
    assert none.exit_code == ExitCode.INVALID_INPUT
    assert "'abcdef' names 0 bills" in none.stderr


@pytest.mark.parametrize("command", [("bills", "import"), ("ledger", "check")])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a,b\n1,2\n", "bill.csv:1: error: has no FOCUS Cost and Usage columns"),
        ("a,b\n1\n", "bill.csv:1: error: has no FOCUS Cost and Usage columns"),
        ("", "bill.csv: error: is empty"),
        (None, "bill.csv: error: no such file"),
    ],
)
def test_what_is_no_bill_is_refused(command: tuple[str, str], content: str | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    if content is not None:
        path.write_text(content)
    done = run(*command, path)
    assert done.exit_code == ExitCode.INVALID_INPUT
    assert told in done.stderr.replace(f"{tmp_path}/", "")
    assert done.stdout == ""


def test_a_clean_file_is_said_to_be_clean(november: Path) -> None:
    done = run("ledger", "check", november, "--closed-through", "2026-10")
    assert (done.exit_code, done.stderr) == (ExitCode.OK, "")
    assert done.stdout == f"{november}: FOCUS 1.2, 60 rows: every rule is kept\n"


def test_findings_have_line_row_column_and_reason(tmp_path: Path) -> None:
    path = changed(tmp_path / "f.csv", cell("PricingCategory", "Spot"))
    done = run("ledger", "check", path)
    assert done.exit_code == ExitCode.FAILURE
    assert done.stdout == (
        f"{path}:6 (row 5): PricingCategory 'Spot' is not one of its words\n"
        "    word: FOCUS lists them; spot is Dynamic\n"
        f"{path}: FOCUS 1.4, 9 rows: 1 finding\n"
    )
    found = json.loads(run("ledger", "check", path, "-o", "json").stdout)
    assert (found["total"], found["focus_version"], found["rows"]) == (1, "1.4", 9)
    assert found["findings"] == [
        {
            "rule": "word",
            "row": 5,
            "line": 6,
            "column": "PricingCategory",
            "value": "'Spot'",
            "what": "'Spot' is not one of its words",
            "why": "FOCUS lists them; spot is Dynamic",
        }
    ]


def test_more_than_are_shown_are_counted(tmp_path: Path) -> None:
    def change(rows: list[dict[str, str]]) -> None:
        for row in rows:
            row["BillingCurrency"] = "dollars"

    done = run("ledger", "check", changed(tmp_path / "f.csv", change), "--most", "2")
    assert done.exit_code == ExitCode.FAILURE
    assert "... and 7 more of the same kinds; --most shows more of each" in done.stdout
    assert "9 rows: 9 findings" in done.stdout


@pytest.mark.parametrize("month", ["2026-13", "October", "2026-10-01"])
def test_a_month_is_a_month(month: str, november: Path) -> None:
    done = run("ledger", "check", november, "--closed-through", month)
    assert done.exit_code == ExitCode.INVALID_INPUT
    assert f"--closed-through: '{month}' is not a month" in done.stderr


def test_a_correction_of_what_is_open(november: Path) -> None:
    assert run("ledger", "check", november, "--closed-through", "2026-09").exit_code == ExitCode.FAILURE
    assert run("ledger", "check", november, "--closed-through", "2025-12").exit_code == ExitCode.FAILURE


def test_what_a_bill_says_does_not_reach_the_terminal(tmp_path: Path) -> None:
    path = changed(tmp_path / "f.csv", cell("InvoiceIssuerName", "\x1b]0;pwned\x07", 1), version="1.2")
    take(path)
    for done in (run("bills", "list"), run("bills", "list", "-o", "json"), run("ledger", "check", path)):
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
