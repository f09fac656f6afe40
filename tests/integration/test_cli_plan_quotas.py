"""Quotas and reservations from what a cloud answers to the lines of a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws_service import make_app
from tests.support.clouds import clouds_file, command
from tests.support.command import JOB, NOW
from tests.support.service import in_thread

READ_AT = "2026-11-21T14:00:00Z"
HERE = "residency: {allow: [aws/us-west-2]}\n"
SPOT = "aws us-west-2 All P5 Spot Instance Requests"
# Two machines may run on demand: a larger gang has no fallback, and has to be in time on spot alone.
CALM = "interruptions: {per_hour: 0.02}\n"


@pytest.fixture(scope="module")
def read_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the quotas of one AWS region were read."""
    home = tmp_path_factory.mktemp("read") / "home"
    home.mkdir()
    with in_thread(make_app(regions=["us-west-2"], off=[], now=READ_AT, history_rows=10)) as url:
        done = command(home, "quotas", "--cloud", "aws", "--clouds", clouds_file(home, {"aws": url}), "--now", READ_AT)
    assert "All P5 Spot" in done.out, done.err
    return home


def job(folder: Path, name: str, count: int, more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    text = JOB.format(name=name, steps=1000, deadline="+18h").replace("count: 8", f"count: {count}")
    path.write_text(text.replace("H100:8", f"H100:{count}") + HERE + more, encoding="utf-8")
    return path


def plan(home: Path, *words: object, code: int = 0) -> tuple[Any, str]:
    done = command(home, "plan", *words, "--book", "embedded", "--now", NOW, "-o", "json")
    assert done.code == code, done.err
    return done.json, done.err


def test_a_plan_takes_quotas_and_reservations_as_they_were_read(read_home: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    job(jobs, "paid", 24)
    job(jobs, "too-large", 32)
    without, _ = plan(read_home, jobs)
    assert without["unplaced"] == []
    assert "sources" not in without["inputs"]
    with_them, told = plan(read_home, jobs, "--quotas", "latest", code=3)
    (left_out,) = with_them["unplaced"]
    assert left_out["job"] == "too-large"
    (line,) = with_them["lines"]
    assert (line["market"], line["machines"], line["price_source"]) == ("reserved", 3, "reservation cr-1")
    sources = {one["limit"]: one for one in with_them["inputs"]["sources"]}
    assert sources[SPOT] == {
        "limit": SPOT,
        "source": "quota of aws",
        "read_at": READ_AT,
        "read": 576,
        "in_file": None,
        "unit": "vcpus",
    }
    assert "from the quota of aws, read 2026-11-21 14:00Z, 4 hours before" in told
    assert "hours ago" not in told


def test_the_smaller_of_file_and_reading_binds(read_home: Path, tmp_path: Path) -> None:
    """Three machines by the reading: a file that says two leaves a gang of three out, one that says nine does not."""
    jobs = tmp_path / "jobs"
    job(jobs, "three", 24, "use_spot: true\n" + CALM)
    limits = tmp_path / "limits.yaml"
    scope = "region: aws/us-west-2, family: [p5, p5en], market: spot, unit: vcpus"
    for amount, left_out, binds in ((384, 1, "limits file"), (1728, 0, "reading")):
        limits.write_text(f"quotas: latest\nlimits: [{{name: p5 spot, {scope}, amount: {amount}}}]\n", encoding="utf-8")
        found, told = plan(read_home, jobs, "--limits", limits, code=3 if left_out else 0)
        assert len(found["unplaced"]) == left_out
        (source,) = [one for one in found["inputs"]["sources"] if one["limit"] == "p5 spot"]
        assert (source["read"], source["in_file"]) == (576, amount)
        assert f"p5 spot: 576 read, {amount:,} in the limits file, the {binds} binds" in told
    assert plan(read_home, jobs, "--limits", limits, "--quotas", "none")[0]["unplaced"] == []


def test_an_old_reading_is_used_and_said_to_be_old(read_home: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    job(jobs, "paid", 24)
    done = command(read_home, "plan", jobs, "--book", "embedded", "--quotas", "latest", "--now", "2026-11-24T15:00:00Z")
    assert done.code == 0
    assert "quotas of aws were read 73 hours ago: stepfare quotas reads them again" in done.err


def test_without_a_reading_it_says_what_to_do(tmp_path: Path) -> None:
    job(tmp_path / "jobs", "one", 8)
    done = command(tmp_path / "home", "plan", tmp_path / "jobs", "--quotas", "latest", "--now", NOW)
    assert done.code == 2
    assert "no quotas were read yet" in done.err
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"schema_version": 1}), encoding="utf-8")
    done = command(tmp_path / "home", "plan", tmp_path / "jobs", "--quotas", broken, "--now", NOW)
    assert (done.code, "broken.json" in done.err) == (2, True)


@pytest.mark.slow
def test_what_if_and_quotes_take_them_too(read_home: Path, tmp_path: Path) -> None:
    path = job(tmp_path / "jobs", "large", 32, CALM)
    words = ("--book", "embedded", "--quotas", "latest", "--now", NOW)
    done = command(read_home, "plan", "what-if", path, *words, "--limit", f"{SPOT}+192", "-o", "json")
    assert (done.json["base"]["placed"], done.json["variants"][0]["placed"]) == (0, 1), done.out
    assert command(read_home, "quote", path, *words, "--no-keep").code == 3
    assert command(read_home, "quote", path, "--book", "embedded", "--now", NOW, "--no-keep").code == 0


def test_counts_of_stock_limit_for_six_hours(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert command(home, "prices", "refresh", "--cloud", "sandbox", "--now", READ_AT).code == 0
    stock = command(home, "stock", "h100.8x", "--machines", "2", "--now", READ_AT, "-o", "json")
    counted = {hint["zone"]: hint["machines"] for hint in stock.json["hints"] if hint["machines"] is not None}
    assert counted, stock.out
    path = job(tmp_path / "jobs", "one", 8)
    path.write_text(path.read_text(encoding="utf-8").replace(HERE, ""), encoding="utf-8")
    words = ("plan", path, "--book", "sandbox", "--quotas", "latest", "-o", "json")
    soon = command(home, *words, "--now", NOW)
    names = {one["limit"]: one["read"] for one in soon.json["inputs"]["sources"]}
    assert len(names) == len(counted)
    assert all(name.startswith("stock of sandbox/") for name in names)
    late = command(home, *words, "--now", "2026-11-22T01:00:00Z")
    assert "sources" not in late.json["inputs"]
    assert "counts of stock are over 6 hours old and left out" in late.err
