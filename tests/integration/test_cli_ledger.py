"""The commands of the ledger as a person runs them: closing a month, correcting it, keeping it, bringing it back."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pricing.money import Usd
from router.state.audit import verify_chain
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.books_steps import FIRST, of
from tests.support.forked import run_forked
from tests.support.new_state import open_state
from tests.support.state_values import NOW, attempt, node

CLOCK = "1@2026-11-21T18:00:00Z"
FEES = """\
entries:
  - {kind: fee, usd: 1250.50, period: 2026-11, reason: support, reference: INV-7}
  - {kind: credit, usd: -99.90, period: 2026-11, reason: promised}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    with opened(folder) as store:
        store.ledger.add(FIRST)
    return folder


def opened(home: Path) -> StateStore:
    return open_state(home / "state.db", NOW)


def run(home: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "COLUMNS": "80", "STEPFARE_HOME": str(home), "STEPFARE_CLOCK": CLOCK}
    done = run_forked(("ledger", *arguments), environment=known)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_month_is_closed_and_what_comes_late_corrects_it(home: Path) -> None:
    done = run(home, "close", "2026-09")
    assert "2026-09 is closed, with 7 entries" in done.stderr
    assert run(home, "verify").stdout == done.stdout
    again = run(home, "close", "2026-09", code=1)
    assert "the books of 2026-09 are closed already" in again.stderr
    ahead = f"{datetime.now(UTC).year + 1}-01"  # a clock of speed 1 shows the machine's own time
    assert f"{ahead} is not over" in run(home, "close", ahead, code=1).stderr
    assert "no month such as" in run(home, "close", "november", code=2).stderr
    with opened(home) as store:
        store.ledger.add([of(9, "late", 9)])
        log = store.audit.entries()
    assert [[one.what, one.digest, one.details["seal"]] for one in log] == [["ledger close", *done.stdout.split()]]
    assert verify_chain(log) is None
    table = run(home, "periods").stdout.splitlines()
    assert table[0].split() == ["PERIOD", "STATE", "CLOSED", "AT", "ENTRIES", "PLANNED", "METERED", "ADDED", "SPENT"]
    assert [line.split()[:2] for line in table[1:]] == [["2026-09", "closed"], ["2026-10", "open"], ["2026-11", "open"]]
    assert max(map(len, table)) <= 80
    periods = json.loads(run(home, "periods", "-o", "json").stdout)
    assert periods["schema_version"] == 1
    assert [(row["period"], row["entries"], row["metered_usd"], row["fee_usd"]) for row in periods["periods"]] == [
        ("2026-09", 4, "82.56", "100.00"),
        ("2026-10", 2, "55.04", "0.00"),
        ("2026-11", 2, "55.04", "0.00"),
    ]


def test_machines_that_are_not_metered_yet_are_said(home: Path) -> None:
    made = datetime(2026, 9, 30, 22, tzinfo=UTC)
    with opened(home) as store:
        store.attempts.add(attempt(phase=Phase.RUNNING), [node(made_at=made), node(rank=1)])
    refused = run(home, "close", "2026-09", code=1)
    assert "not metered yet: 1 machine of 2026-09" in refused.stderr
    assert "--anyway" in refused.stderr
    run(home, "close", "2026-09", "--anyway")


def test_people_add_fees_once(home: Path, tmp_path: Path) -> None:
    (tmp_path / "fees.yaml").write_text(FEES)
    assert "2 entries, $1,150.60; nothing was written" in run(home, "add", tmp_path / "fees.yaml", "--dry-run").stderr
    assert "2 of 2 entries are new; the ledger has 9" in run(home, "add", tmp_path / "fees.yaml").stderr
    assert "0 of 2 entries are new; the ledger has 9" in run(home, "add", tmp_path / "fees.yaml").stderr
    with opened(home) as store:
        assert [(one.what, one.usd) for one in store.audit.entries()] == [("ledger add", Usd.parse("1150.60"))]
        assert all("@" in one.who for one in store.ledger.entries()[-2:])
    run(home, "close", "2026-09")
    (tmp_path / "late.csv").write_text("kind,usd,period,reason\nfee,1,2026-09,forgotten\n")
    late = run(home, "add", tmp_path / "late.csv", code=1)
    assert "`period: 2026-10` with `corrects: 2026-09` puts it into open ones" in late.stderr
    (tmp_path / "late.csv").write_text("kind,usd,period,reason,corrects\nfee,1,2026-11,forgotten,2026-09\n")
    assert "1 of 1 entries are new" in run(home, "add", tmp_path / "late.csv").stderr
    (tmp_path / "late.csv").write_text("kind,usd,period,reason,corrects\nfee,2,2026-11,forgotten,nothing\n")
    assert "neither the key of an entry nor a closed month" in run(home, "add", tmp_path / "late.csv", code=1).stderr
    assert "usd: 'x' is not an amount" in _bad(home, tmp_path)


def _bad(home: Path, folder: Path) -> str:
    (folder / "bad.yaml").write_text(FEES.replace("1250.50", "x"))
    return run(home, "add", folder / "bad.yaml", code=2).stderr


def test_entries_are_listed_in_three_forms(home: Path) -> None:
    table = run(home, "list").stdout.splitlines()
    assert table[0].split() == ["START", "KIND", "USE", "TEAM", "JOB", "CLOUD", "HOURS", "USD"]
    assert (len(table), max(map(len, table)) <= 80) == (8, True)
    october = json.loads(run(home, "list", "--month", "2026-10", "-o", "json").stdout)
    assert [(row["key"], row["usd"], row["use"], row["usd_per_hour"]) for row in october["entries"]] == [
        ("o1", "27.52", "work", "27.52"),
        ("o2", "27.52", "work", "27.52"),
    ]
    rows = list(csv.DictReader(io.StringIO(run(home, "list", "-o", "csv").stdout)))
    assert [row["key"] for row in rows] == [entry.key for entry in FIRST]
    assert sum(float(row["usd"]) for row in rows) == pytest.approx(6 * 27.52 + 100)
    few = run(home, "list", "--kind", "metered", "--team", "ops")
    assert len(few.stdout.splitlines()) == 2
    assert "the last 1 of 7 entries" in run(home, "list", "--limit", "1").stderr
    assert "'rent' is none of planned, metered, fee" in run(home, "list", "--kind", "rent", code=2).stderr


def test_files_of_entries_are_whole_and_tables_have_the_latest(home: Path) -> None:
    with opened(home) as store:
        more = [replace(each, key=f"{each.key}-{n}") for n in range(10) for each in FIRST]
        store.ledger.add(more)
    count = len(FIRST) * 11
    listed = run(home, "list", "-o", "json")
    assert (len(json.loads(listed.stdout)["entries"]), listed.stderr) == (count, "")
    listed = run(home, "list", "-o", "csv")
    assert (len(list(csv.DictReader(io.StringIO(listed.stdout)))), listed.stderr) == (count, "")
    assert len(json.loads(run(home, "list", "-o", "json", "--limit", "3").stdout)["entries"]) == 3
    table = run(home, "list")
    assert f"the last {len(table.stdout.splitlines()) - 1} of {count} entries" in table.stderr


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    home = tmp_path / "none"
    home.mkdir()
    assert run(home, "list").stdout == "no entries\n"
    assert run(home, "periods").stdout == "the ledger is empty\n"
    assert run(home, "verify").stdout.strip() == "0" * 64
    assert not (home / "state.db").exists()


@pytest.mark.slow
def test_books_are_kept_brought_back_and_moved_to_archives(home: Path, tmp_path: Path) -> None:
    run(home, "close", "2026-09")
    kept = run(home, "backup", tmp_path / "books.gz")
    assert "is there already" in run(home, "backup", tmp_path / "books.gz", code=1).stderr
    other = tmp_path / "other"
    assert run(other, "restore", tmp_path / "books.gz").stdout == kept.stdout
    assert run(other, "verify").stdout.split()[0] == kept.stdout.strip()
    assert "is not empty" in run(other, "restore", tmp_path / "books.gz", code=1).stderr
    assert (
        "only months up to 2026-09 are closed"
        in run(home, "archive", tmp_path / "old.gz", "--before", "2026-11", code=1).stderr
    )
    moved = run(home, "archive", tmp_path / "old.gz", "--before", "2026-10")
    assert "4 entries of months before 2026-10" in moved.stderr
    assert "as they were archived" in run(home, "verify", "--archive", tmp_path / "old.gz").stderr
    assert run(home, "verify").stdout.split()[0] == kept.stdout.strip()
    assert "4 of them archived" in run(home, "verify").stderr
    for command in (("restore", tmp_path / "old.gz"), ("verify", "--archive", tmp_path / "books.gz")):
        assert "name a file that" in run(tmp_path / "third", *command, code=1).stderr
    (tmp_path / "old.gz").write_bytes(b"something else")
    assert "is no backup or archive file" in run(home, "verify", "--archive", tmp_path / "old.gz", code=1).stderr


def test_what_somebody_changed_is_found(home: Path) -> None:
    with sqlite3.connect(home / "state.db") as database:
        database.execute("DROP TRIGGER ledger_keeps_rows")
        database.execute("UPDATE ledger SET usd_nanos = 1 WHERE seq = 2")
    database.close()
    found = run(home, "verify", code=1)
    assert "entry 2 is not what was written: somebody changed or removed one" in found.stderr
    assert "entry 2 is not what was written" in run(home, "close", "2026-09", code=1).stderr
