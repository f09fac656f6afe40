"""Which version of a bill counts: a copy that was cut, the right one again, one that a person brings back or takes
away, and rows that stand there twice. On the bill of the example month."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from router.cli.console import ExitCode
from tests.support.command import run
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "showback"
RIGHT = EXAMPLE / "bill-aws.csv"
DAY = "2026-12-0{}T09:00:00Z"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """The first half of its rows, whole ones."""
    lines = RIGHT.read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.csv"
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    return path


def take(day: int, *paths: Path, **said: object) -> Result:
    options = [f"--{name.replace('_', '-')}" for name in said]
    return run("bills", "import", *paths, *options, "--now", DAY.format(day))


def parsed(result: Result) -> Any:
    assert result.exit_code == ExitCode.OK, result.stderr
    return json.loads(result.stdout)


def standing(*options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parsed(run("bills", "list", "-o", "json", *options))["bills"]
    return found


def billed(path: Path) -> Decimal:
    with path.open(encoding="utf-8", newline="") as stream:
        return sum((Decimal(row["BilledCost"]) for row in csv.DictReader(stream)), Decimal(0))


def stands() -> Decimal:
    (bill,) = standing()
    return Decimal(bill["sums"]["USD"]["BilledCost"])


def test_the_right_bill_stands_again_after_a_cut_copy(cut: Path) -> None:
    take(1, RIGHT)
    (right,) = standing()
    assert stands() == billed(RIGHT)
    fallen = take(2, cut)
    assert stands() == billed(cut) < billed(RIGHT)
    rows = (len(RIGHT.read_bytes().splitlines()) - 1, len(cut.read_bytes().splitlines()) - 1)
    told = " ".join(fallen.stderr.split())
    assert f"rows fall from {rows[0]} to {rows[1]}" in told
    assert f"billed cost falls from {billed(RIGHT):,.2f} to {billed(cut):,.2f} USD" in told
    assert f"stepfare bills restore {right['id']}" in told
    again = take(3, RIGHT)
    assert again.exit_code == ExitCode.OK
    assert f"{right['id']} stands again" in again.stderr
    assert "fall" not in again.stderr
    assert stands() == billed(RIGHT)
    assert [bill["id"] for bill in standing()] == [right["id"]]
    assert len(standing("--all")) == 2  # its rows are not stored twice
    assert "nothing changed" in take(4, RIGHT).stderr


def test_one_of_several_files_of_a_delivery_again(cut: Path) -> None:
    every = sorted(EXAMPLE.glob("bill-*.csv"))
    take(1, *every)
    take(2, cut)
    done = take(3, RIGHT)
    assert "stands again" in done.stderr
    aws = max(standing(), key=lambda bill: int(bill["rows"]))
    assert Decimal(aws["sums"]["USD"]["BilledCost"]) == billed(RIGHT)
    assert "nothing changed" in take(4, *every).stderr


def test_falls_are_in_json_with_both_figures(cut: Path) -> None:
    take(1, RIGHT)
    found = parsed(run("bills", "import", cut, "-o", "json", "--now", DAY.format(2)))
    assert {each["what"]: (each["before"], each["after"]) for each in found["fell"]}["rows"] == (
        str(len(RIGHT.read_bytes().splitlines()) - 1),
        str(len(cut.read_bytes().splitlines()) - 1),
    )
    costs = next(each for each in found["fell"] if each["what"] == "BilledCost")
    assert (Decimal(costs["before"]), Decimal(costs["after"])) == (billed(RIGHT), billed(cut))


def test_an_earlier_version_is_brought_back_and_it_is_in_the_audit_log(cut: Path) -> None:
    take(1, RIGHT)
    (right,) = standing()
    take(2, cut)
    (wrong,) = standing()
    done = run("bills", "restore", right["id"], "--reason", "the copy was cut off", "--now", DAY.format(3))
    assert done.exit_code == ExitCode.OK
    assert f"{right['id']} stands again" in done.stderr
    assert f"{wrong['id']} stands no more" in done.stderr
    assert stands() == billed(RIGHT)
    (entry,) = [each for each in parsed(run("audit", "-o", "json"))["entries"] if each["what"] == "bills restore"]
    assert entry["details"]["bill"] == right["id"]
    assert entry["details"]["reason"] == "the copy was cut off"
    twice = run("bills", "restore", right["id"], "--now", DAY.format(4))
    assert (twice.exit_code, "stands already" in twice.stderr) == (ExitCode.INVALID_INPUT, True)


def test_a_bill_is_taken_away_with_a_reason_and_comes_back_by_import() -> None:
    take(1, RIGHT)
    (right,) = standing()
    assert run("bills", "remove", right["id"], "--reason", "  ").exit_code == ExitCode.INVALID_INPUT
    done = run("bills", "remove", right["id"][5:10], "--reason", "of another company", "--now", DAY.format(2))
    assert done.exit_code == ExitCode.OK
    assert standing() == []
    shown = run("bills", "show", right["id"])
    assert "removed by" in shown.stdout
    assert "of another company" in shown.stdout
    assert standing("--all")[0]["removed"]["reason"] == "of another company"
    again = run("bills", "remove", right["id"], "--reason", "once more")
    assert (again.exit_code, "does not stand" in again.stderr) == (ExitCode.INVALID_INPUT, True)
    assert [each["what"] for each in parsed(run("audit", "-o", "json"))["entries"]] == ["bills remove"]
    assert "stands again" in take(3, RIGHT).stderr
    assert stands() == billed(RIGHT)


def test_rows_of_a_bill_that_are_gone_cannot_be_brought_back(cut: Path) -> None:
    take(1, RIGHT)
    (right,) = standing()
    take(2, cut)
    Path(parsed(run("bills", "show", right["id"], "-o", "json"))["parquet"]).unlink()
    refused = run("bills", "restore", right["id"])
    assert (refused.exit_code, "its rows are gone" in refused.stderr) == (ExitCode.INVALID_INPUT, True)
    assert stands() == billed(cut)
    take(3, RIGHT)  # what is gone is stored anew
    assert stands() == billed(RIGHT)


def test_whole_rows_twice_are_refused_with_their_lines(tmp_path: Path) -> None:
    lines = RIGHT.read_bytes().splitlines(keepends=True)
    path = tmp_path / "twice.csv"
    path.write_bytes(b"".join([*lines, lines[5], lines[7]]))
    refused = take(1, path)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    told = " ".join(refused.stderr.split())
    last = len(lines)
    assert f"twice.csv:{last + 1}: error: is cell for cell the row of" in told
    assert "twice.csv:6" in told
    assert f"twice.csv:{last + 2}" in told
    with RIGHT.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    more = Decimal(rows[4]["BilledCost"]) + Decimal(rows[6]["BilledCost"])
    assert f"2 rows stand there twice, {more:,.2f} USD billed" in told
    assert "--allow-duplicates" in told
    assert standing() == []
    taken = take(1, path, allow_duplicates=True)
    assert taken.exit_code == ExitCode.OK
    assert "2 rows stand there twice" in taken.stderr
    assert stands() == billed(RIGHT) + more


def test_a_bill_twice_in_two_forms_is_refused(tmp_path: Path) -> None:
    """As CSV and, in other bytes, as CSV once more: each row is there twice."""
    path = tmp_path / "other.csv"
    path.write_bytes(RIGHT.read_bytes().rstrip(b"\n"))
    refused = take(1, RIGHT, path)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    assert f"{len(RIGHT.read_bytes().splitlines()) - 1} rows stand there twice" in refused.stderr
    assert refused.stderr.count("is cell for cell") == 5


def test_the_same_rows_in_another_order_and_file_change_nothing(tmp_path: Path) -> None:
    take(1, RIGHT)
    head, *rows = RIGHT.read_bytes().splitlines(keepends=True)
    path = tmp_path / "sorted.csv"
    path.write_bytes(b"".join([head, *reversed(rows)]))
    assert "nothing changed" in take(2, path).stderr
    assert len(standing("--all")) == 1
