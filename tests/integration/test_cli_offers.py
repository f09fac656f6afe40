"""``stepfare offers`` as a user runs it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pricing.book_file import embedded_book, write_book
from router.cli.main import app
from tests.support.books import AN_OFFER, a_book, spot

NOW = "2026-11-21T18:00:00Z"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["offers", *arguments])


def test_a_table_with_age_and_source() -> None:
    result = run("--accelerator", "H100", "--market", "spot", "--now", NOW)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["PLACE", "MACHINE", "GPUS", "MARKET", "$/GPU-H", "$/H", "AGE", "SRC"]
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if "8xH100" in line or "1xH100" in line]) > 5
    assert any(line.startswith("[1] ") for line in lines)
    assert "30 of " in result.stderr


def test_filters_sort_and_limit() -> None:
    result = run("--cloud", "gcp", "--sort", "hour", "--limit", "3", "-o", "json", "--now", NOW)
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert [o["cloud"] for o in document["offers"]] == ["gcp"] * 3
    prices = [float(o["usd_per_hour"]) for o in document["offers"]]
    assert prices == sorted(prices)
    assert {o["age_days"] for o in document["offers"]} == {107}


def test_programs_get_everything(tmp_path: Path) -> None:
    file = tmp_path / "offers.csv"
    result = run("-o", "csv", "--out", str(file), "--now", NOW)
    assert (result.exit_code, result.stdout) == (0, "")
    assert len(list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))) == len(embedded_book().offers)


def test_a_maximum_age_leaves_out_what_is_old_or_undated() -> None:
    result = run("--max-age", "120d", "-o", "json", "--now", NOW)
    ages = {o["age_days"] for o in json.loads(result.stdout)["offers"]}
    assert ages == {107}
    assert "older than 120d or undated" in result.stderr


def test_a_book_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "book.parquet"
    write_book(a_book([AN_OFFER, spot("30")]), path)
    result = run("--book", str(path), "-o", "json", "--now", NOW)
    assert [o["usd_per_hour"] for o in json.loads(result.stdout)["offers"]] == ["30.00", "55.04"]


def test_nothing_passes() -> None:
    table = run("--cloud", "verda", "--accelerator", "T4", "--now", NOW)
    assert (table.exit_code, table.stdout) == (0, "")
    assert "no offer passes" in table.stderr
    assert json.loads(run("--cloud", "verda", "--accelerator", "T4", "-o", "json").stdout)["offers"] == []


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--cloud", "awz"), "did you mean aws?"),
        (("--accelerator", "H10"), "did you mean H100?"),
        (("--region", "us-east1-"), "--region: unknown region"),
        (("--instance-type", "p5.48xlarg"), "did you mean p5.48xlarge?"),
        (("--max-age", "30"), "--max-age"),
        (("--now", "2026-11-21T18:00"), "no time zone"),
        (("--now", "+3h"), "is a point in time"),
        (("--book", "none.parquet"), "no such file"),
        (
            ("--book", "newest"),
            "no such file, and no name of a price book\n    name latest, sandbox",
        ),
        (("--cloud", "foo"), "unknown cloud 'foo'\n    known: aws, azure, gcp"),
        (("--instance-type", "zzzzzz"), "unknown instance type 'zzzzzz'\n    leave it out to see all of them"),
        (("--market", "barter"), "barter"),
        (("--limit", "-1"), "--limit"),
    ],
)
def test_bad_usage_is_exit_code_2_with_a_remedy(arguments: tuple[str, ...], what: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert what in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


def test_a_truncated_book_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path, out = tmp_path / "book.parquet", tmp_path / "out.csv"
    write_book(a_book(), path)
    path.write_bytes(path.read_bytes()[:-100])
    result = run("--book", str(path), "-o", "csv", "--out", str(out))
    assert result.exit_code == 2
    assert "may be truncated" in result.stderr
    assert not out.exists()
