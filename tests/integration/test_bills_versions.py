"""Which version of a bill counts: a copy that was cut, the right one again, one that a person brings back or takes
away, and rows that stand there twice. On the bill of the example month."""

from __future__ import annotations

import csv
import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from router.cli.bills import import_files
from router.cli.console import ExitCode
from router.showback.bill_import import UnclearDeliveryError
from tests.support.command import run
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "showback"
RIGHT = EXAMPLE / "bill-aws.csv"
ISSUER = "Example AWS (made up)"
DAY = "2026-12-0{}T09:00:00Z"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """The first two thirds of its rows, whole ones."""
    lines = RIGHT.read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.csv"
    path.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    return path


def take(day: int, *paths: Path) -> Result:
    return run("bills", "import", *paths, "--now", DAY.format(day))


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_delivery_that_shares_few_lines_is_asked_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows 1 to 60 of an account, and the others afterwards."""
    head, *rows = RIGHT.read_bytes().splitlines(keepends=True)
    first, rest = tmp_path / "first.csv", tmp_path / "rest.csv"
    first.write_bytes(b"".join([head, *rows[:60]]))
    rest.write_bytes(b"".join([head, *rows[60:]]))
    take(1, first)
    before = stands()
    refused = take(2, rest)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    told = " ".join(refused.stderr.split())
    assert f"with 60 rows, of which the delivery has 0 and {len(rows) - 60} others" in told
    assert "--as part" in told
    assert stands() == before
    monkeypatch.setattr(sys, "stdin", Terminal("neither\npart\n"))
    with pytest.raises(UnclearDeliveryError):
        import_files([rest], now=DAY.format(2))
    import_files([rest], now=DAY.format(2))
    assert "holds the rows of" in capsys.readouterr().err
    assert stands() == billed(RIGHT)


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
    assert f"stepfare bills duplicates '{ISSUER}' --permit --reason WHY" in told
    assert standing() == []
    assert run("bills", "duplicates", ISSUER, "--permit").exit_code == ExitCode.INVALID_INPUT  # without a reason
    assert run("bills", "duplicates", ISSUER, "--permit", "--reason", "equal lines").exit_code == ExitCode.OK
    taken = take(1, path)
    assert taken.exit_code == ExitCode.OK
    assert "2 rows stand there twice" in taken.stderr
    assert stands() == billed(RIGHT) + more


def test_the_same_bill_under_a_renamed_issuer_counts_once(tmp_path: Path) -> None:
    take(1, RIGHT)
    (right,) = standing()
    path = tmp_path / "renamed.csv"
    path.write_text(RIGHT.read_text().replace(f",{ISSUER},", ",Amazon Web Services EMEA SARL,"))
    refused = take(2, path)
    assert refused.exit_code == ExitCode.INVALID_INPUT
    told = " ".join(refused.stderr.split())
    assert f"{billed(RIGHT):,.2f} USD billed, on {right['id']} ({ISSUER}) too" in told
    assert f"stepfare bills remove {right['id']} --reason WHY" in told
    assert stands() == billed(RIGHT)
    assert run("bills", "remove", right["id"], "--reason", "renamed").exit_code == ExitCode.OK
    assert take(3, path).exit_code == ExitCode.OK
    assert stands() == billed(RIGHT)
    restored = run("bills", "restore", right["id"])
    assert (restored.exit_code, "billed, on" in restored.stderr) == (ExitCode.INVALID_INPUT, True)
    assert stands() == billed(RIGHT)


def test_a_rule_of_both_issuers_is_kept_and_what_they_share_is_listed(tmp_path: Path) -> None:
    take(1, RIGHT)
    path = tmp_path / "renamed.csv"
    path.write_text(RIGHT.read_text().replace(f",{ISSUER},", ",Reseller,"))
    for issuer in (ISSUER, "Reseller"):
        assert take(2, path).exit_code == ExitCode.INVALID_INPUT  # one rule is not enough
        assert run("bills", "duplicates", issuer, "--permit", "--reason", "both count").exit_code == ExitCode.OK
    assert take(3, path).exit_code == ExitCode.OK
    found = parsed(run("bills", "duplicates", "-o", "json"))
    (shared,) = found["shared"]
    assert Decimal(shared["billed"]["USD"]) == billed(RIGHT)
    assert [(rule["issuer"], rule["allowed"]) for rule in found["rules"]] == [(ISSUER, True), ("Reseller", True)]
    assert run("bills", "duplicates", "Reseller", "--refuse", "--reason", "no more").exit_code == ExitCode.OK
    assert {each["what"] for each in parsed(run("audit", "-o", "json"))["entries"]} == {
        "bills duplicates allow",
        "bills duplicates refuse",
    }
    lines = run("bills", "duplicates").stdout
    assert "'Reseller': refused" in lines
    assert f"({ISSUER}) too" in lines
    assert run("bills", "duplicates", "--permit").exit_code == ExitCode.INVALID_INPUT


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


def test_a_stored_bill_that_cannot_be_read_is_named_with_what_takes_it_out() -> None:
    """As bills stand that an earlier version took without reading their periods, or a disk that lost a sector."""
    take(1, RIGHT)
    (right,) = standing()
    path = Path(parsed(run("bills", "show", right["id"], "-o", "json"))["parquet"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\0" * (len(whole) - len(whole) // 2))
    refused = run("showback", "--month", "2026-11", "--now", DAY.format(3))
    assert refused.exit_code == ExitCode.INVALID_INPUT
    words = " ".join(refused.stderr.split())
    assert f"{right['id']}: row 1 or later: error: this stored bill" in words
    assert f"stepfare bills remove {right['id']} --reason WHY takes it out" in words
    assert run("bills", "remove", right["id"], "--reason", "damaged").exit_code == ExitCode.OK
    assert run("showback", "--month", "2026-11", "--now", DAY.format(3)).exit_code == ExitCode.OK
