"""The same plan comes out of a book that an adapter wrote and of the same rows brought in as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import aws_service
from tests.support.clouds import NOW, clouds_file, command
from tests.support.command import write_job
from tests.support.service import in_thread

LIMITS = "clouds: [aws]\ndefault_cap_machines: 4\n"


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose latest book the AWS adapter wrote, and beside it the rows of AWS as CSV."""
    home = tmp_path_factory.mktemp("aws")
    with in_thread(aws_service.make_app(regions=3, history_rows=2_500, history_days=3, now=NOW)) as url:
        file = clouds_file(home, {"aws": url})
        done = command(home, "prices", "refresh", "--clouds", file, "--cloud", "aws", "--now", NOW)
    assert done.code == 0, done.out
    for name, only in (("aws", ("--cloud", "aws")), ("all", ())):
        rows = command(home, "offers", *only, "-o", "csv", "--now", NOW)
        assert rows.code == 0
        (home / f"{name}.csv").write_text(rows.out, encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    for number, steps in enumerate((4_000, 9_000, 15_000)):
        write_job(folder / "jobs", f"job-{number}", steps=steps, deadline="+30h")
    (folder / "limits.yaml").write_text(LIMITS)
    return folder


def _plan(home: Path, jobs: Path, *more: object) -> Any:
    limits = jobs / "limits.yaml"
    done = command(home, "plan", jobs / "jobs", "--limits", limits, "--now", NOW, "-o", "json", *more)
    assert done.code == 0, done.err
    return done.json


def _decided(plan: Any) -> Any:
    """What the plan decides and what it costs: all but the names of the plan and of its book."""
    usage = {key: value for key, value in plan["usage"].items() if key != "digest"}
    rest = {key: value for key, value in plan.items() if key not in {"plan_id", "digest", "book", "inputs", "solver"}}
    return {**rest, "usage": usage}


@pytest.mark.slow
def test_a_csv_file_gives_the_plan_of_the_adapters_book(refreshed: Path, jobs: Path) -> None:
    ours, theirs = _plan(refreshed, jobs), _plan(refreshed, jobs, "--book", refreshed / "all.csv")
    assert len(ours["jobs"]) == 3
    assert _decided(ours) == _decided(theirs)


def test_so_does_the_file_imported_into_another_home(refreshed: Path, jobs: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = command(home, "prices", "import", refreshed / "aws.csv", "--replace", "--accept-jumps", "--now", NOW)
    assert done.code == 0, done.err
    assert _decided(_plan(refreshed, jobs)) == _decided(_plan(home, jobs))
    rows = command(home, "offers", "--cloud", "aws", "-o", "csv", "--now", NOW)
    assert rows.out == (refreshed / "aws.csv").read_text(encoding="utf-8")
