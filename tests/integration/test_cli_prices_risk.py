"""``stepfare prices risk`` as a user runs it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pricing.book_file import embedded_book, write_book
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, LossReason, PoolExperience
from router.app.learned import runs_to_json
from router.jobs.experience import PoolRun, RunRecords
from tests.support.books import a_book, spot
from tests.support.command import run as run_command

NOW = "2026-11-21T18:00:00Z"
AT = datetime(2026, 11, 21, 6, tzinfo=UTC)
P5 = "aws/us-east-1/p5.48xlarge"


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))


def run(*arguments: object) -> Result:
    return run_command("prices", "risk", *arguments)


def pools(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "--now", NOW, "-o", "json")
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["pools"])


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A book of two zones, one of them with a record."""
    offers = [spot("30", zone="us-east-1a"), spot("30", zone="us-east-1b")]
    pool = ("aws", "us-east-1", "us-east-1a", "p5.48xlarge", Market.SPOT)
    record = PoolExperience(*pool, 1, 90.0, 14.0, 3.0, 5, AT, AT, ExperienceKind.AVAILABILITY)
    path = tmp_path / "book.parquet"
    write_book(replace(a_book(offers), records=(record,)), path)
    return path


def test_a_table_of_pools_the_calmest_first() -> None:
    result = run("--accelerator", "H100", "--cloud", "aws", "--now", NOW)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["PLACE", "MACHINE", "LEVEL"]
    assert max(map(len, lines)) <= 80
    assert "nobody has published any" in lines[-1]
    assert all(" ~" in line for line in lines[1 : lines.index("")])
    found = pools("--accelerator", "H100", "--cloud", "aws")
    medians = [pool["level"]["median"] for pool in found]
    assert medians == sorted(medians)
    assert {(pool["cloud"], pool["accelerator"], pool["unpublished"]) for pool in found} == {("aws", "H100", True)}
    few = run("--accelerator", "H100", "--limit", 2, "--now", NOW)
    assert few.stdout.splitlines().index("") == 3
    assert "2 of " in few.stderr


def test_every_spot_offer_of_the_book_has_a_risk(tmp_path: Path) -> None:
    file = tmp_path / "risk.csv"
    result = run("-o", "csv", "--out", file, "--now", NOW)
    assert (result.exit_code, result.stdout) == (0, "")
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    sold = {o.key[:4] for o in embedded_book().sold_only().offers if o.market is Market.SPOT}
    named = {(r["cloud"], r["region"], "" if r["zone"] == "none" else r["zone"], r["instance_type"]) for r in rows}
    assert named == sold
    assert len(rows) == len(sold)
    assert all(0 < float(row["level_low"]) < float(row["level_median"]) < float(row["level_high"]) for row in rows)
    assert all(0 < float(row["no_interruption_24h"]) < float(row["no_interruption_8h"]) < 1 for row in rows)


def test_the_ledger_of_one_pool() -> None:
    result = run(P5, "--now", NOW)
    assert result.exit_code == 0
    for words in (
        "aws/us-east-1: p5.48xlarge (8 H100), spot",
        "doubt           nobody has published any",
        "band            >20% (2025-06-28), counts 22%",
        "WHAT WOULD CHANGE IT",
        "one interruption tomorrow",
        "four machines for 10 h without one",
    ):
        assert words in result.stdout
    (pool,) = pools(P5)
    assert [each["level"] for each in pool["evidence"]] == ["band", "prior"]
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_record_of_the_book_is_seen_and_zones_are_told_apart(watched: Path) -> None:
    both = run(P5, "--book", watched, "--now", NOW)
    assert both.exit_code == 0
    assert "2 zones; `stepfare prices risk aws/us-east-1/us-east-1" in both.stderr
    assert both.stdout.startswith("PLACE")
    one = run("aws/us-east-1a/p5.48xlarge", "--book", watched, "--now", NOW)
    assert "own availability" in one.stdout
    assert "3 in 90 h of 5 lives, the last on 2026-11-21" in one.stdout
    found = {pool["zone"]: pool for pool in pools(P5, "--book", watched)}
    # Nobody held a gang there: a probe knows of no other reason than capacity.
    none = {"price_limit": None, "maintenance": None, "host": None, "without_reason": 0.0}
    seen = {"interruptions": 3.0, "hours": 90.0, "exposure": 14.0, "lives": 5, "losses": {"capacity": 3.0, **none}}
    unseen = {"interruptions": 0.0, "hours": 0.0, "exposure": 0.0, "lives": 0, "losses": {"capacity": None, **none}}
    assert (found["us-east-1a"]["own"], found["us-east-1b"]["own"]) == (seen, unseen)
    assert "own price limit not recorded" in one.stdout


def test_own_attempts_count_as_for_plans(watched: Path, tmp_path: Path) -> None:
    attempts = tuple(
        PoolRun(f"a{number}", "aws", "us-east-1", "us-east-1b", "p5.48xlarge", "spot", 1, 0.5, interrupted=True, at=AT)
        for number in range(4)
    )
    runs = tmp_path / "runs.json"
    runs.write_text(runs_to_json(RunRecords(pools=attempts)), encoding="utf-8")
    pool = "aws/us-east-1b/p5.48xlarge"
    (without,) = pools(pool, "--book", watched)
    (with_runs,) = pools(pool, "--book", watched, "--learned", runs)
    assert pools(pool, "--book", watched, "--learned", "none") == [without]
    assert with_runs["own"]["lives"] == 4
    assert with_runs["level"]["median"] > without["level"]["median"]
    assert with_runs["evidence"][0]["level"] == "own gangs"
    broken = run(pool, "--book", watched, "--learned", watched, "--now", NOW)
    assert broken.exit_code == 2


def test_losses_are_counted_apart_by_reason_and_capacity_alone_moves_the_level(watched: Path, tmp_path: Path) -> None:
    reasons = (LossReason.CAPACITY, None, None, LossReason.PRICE, LossReason.MAINTENANCE, LossReason.HOST)
    attempts = tuple(
        PoolRun(f"a{n}", "aws", "us-east-1", "us-east-1b", "p5.48xlarge", "spot", 1, 0.5, True, at=AT, reason=reason)
        for n, reason in enumerate(reasons)
    )
    runs = tmp_path / "runs.json"
    pool = "aws/us-east-1b/p5.48xlarge"

    def level(*known: PoolRun) -> dict[str, float]:
        runs.write_text(runs_to_json(RunRecords(pools=known)), encoding="utf-8")
        (found,) = pools(pool, "--book", watched, "--learned", runs)
        return dict(found["level"])

    kept = tuple(replace(each, interrupted=each.lost_capacity, reason=None) for each in attempts)
    assert level(*attempts) == level(*kept)
    runs.write_text(runs_to_json(RunRecords(pools=attempts)), encoding="utf-8")
    (found,) = pools(pool, "--book", watched, "--learned", runs)
    each = found["own"]["interruptions"] / 3  # half a day old, so that each counts a little less than one
    assert found["own"]["losses"] == {
        "capacity": pytest.approx(3 * each),
        **{name: pytest.approx(each, rel=1e-4) for name in ("price_limit", "maintenance", "host")},
        "without_reason": pytest.approx(2 * each, rel=1e-4),
    }
    told = run(pool, "--book", watched, "--learned", runs, "--now", NOW).stdout
    assert "OWN LOSSES BY REASON, of which capacity alone is in the level" in told
    assert "capacity        2.9, 1.9 of them without a recorded reason" in told
    assert "host failure    0.95" in told
    header, row = csv.reader(
        run(pool, "--book", watched, "--learned", runs, "--now", NOW, "-o", "csv").stdout.splitlines()
    )
    assert [float(row[header.index(f"lost_{name}")]) for name in ("by_price_limit", "by_host", "without_reason")] == [
        pytest.approx(n * each, rel=1e-4) for n in (1, 1, 2)
    ]
    runs.write_text(runs.read_text(encoding="utf-8").replace("price_limit", "bad luck"), encoding="utf-8")
    assert run(pool, "--book", watched, "--learned", runs, "--now", NOW).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["p5.48xlarge"], "is no pool"),
        (["aws/us-east-1/p5.48xlarg"], "did you mean aws/us-east-1/p5.48xlarge"),
        (["--cloud", "asw"], "--cloud: unknown cloud 'asw'"),
        (["--instance-type", "p5.48xlarg"], "--instance-type"),
        (["--book", "no-such-book"], "no-such-book"),
        (["--now", "soon"], "--now"),
    ],
)
def test_wrong_input_is_refused_with_what_to_do(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_filters_beside_a_pool_are_not_ignored_silently() -> None:
    result = run(P5, "--cloud", "gcp", "--now", NOW)
    assert result.exit_code == 0
    assert "the filters are not used" in result.stderr


def test_nothing_on_spot_is_said() -> None:
    result = run("--cloud", "lambda", "--now", NOW)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no spot offer passes the filters" in result.stderr
