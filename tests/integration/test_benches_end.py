"""Benches that documents name run to their end, small: an assertion at their end once failed unseen.

All are here but those of :data:`EXCEPTIONS`, which has the reasons; those that take long do so for 15 to 90 seconds of
a processor. Of `run` those parts are left out that take long by themselves. No bench installs anything: `install_size`
weighs what is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.bench.interruption_rates import DATA
from tests.bench.published_runs import RUNS
from tests.support.repository import ROOT

needs_runs = pytest.mark.skipif(not RUNS.is_file(), reason="the shared data are not here")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")


def bench(line: str, last: str, *marks: Any) -> Any:
    """A bench with its arguments, and what its last line has."""
    words = line.split()
    return pytest.param(words, last, marks=marks, id=words[0])


BENCHES = [
    # Those that take longest come first.
    bench(
        "run --small --jobs 4 --only start-up examples many-jobs coordinator metrics first-write backtest", "least cost"
    ),
    bench("calibrate --only 2022 --blocks 2 --starts 1 --out {folder}", "tables and page are in", needs_data),
    bench("price_history --rows 20000", "peak memory"),
    bench("interruption_rates --draws 5", "correlation of both halves", needs_data),
    bench("plan_page --examples 3 --copies 2", "/plans"),
    bench("front_door --connections 50 --seconds 0.5 --tls --crowds endless", "coordinator"),
    bench("validate_speed --every 14", "", needs_runs),
    bench("fit_speed --every 30", "not stored", needs_runs),
    bench("promises --only us-west-2a_k80_8 --most 1 --draws 10 --starts 2", "of processor time", needs_data),
    bench("quoted_policies bert-large-pretraining", "foresight"),
    bench("useful_share --lives 50", "%"),
    bench("install_size", "together"),
    bench("speed_estimates", ""),
    bench("start --runs 1", "`stepfare status`"),
    bench("agent", "resident: agent"),
    bench("agreement --instances 2", "violations: 0"),
    bench("bills --megabytes 1", "ledger check"),
    bench("checkpoint", "first byte"),
    bench("coordinator --nodes 8", "the end of every node"),
    bench("ledger --rows 2000 --sqlite-only", "back up"),
    bench("many_nights --jobs 40 --seeds 1", "proven"),
    bench("orders --gangs 3 --ranks 2", "3 gangs of 2 told at once"),
    bench("points", "power law"),
    bench("price_forecast", "perfect foresight"),
    bench("reassign --gangs 5", "proven fewest"),
    bench("reconcile --rows 20000", "the bill's sum"),
]

# Benches that pages name and that do not run here, each with the reason.
EXCEPTIONS = {
    "campaign": "`.ci/run` plays 20 seeds of it (`make drill`)",
    "cells": "takes over a minute at any size",
    "console_load": "takes long at any size, and test_console_serving.py asks servers at once",
    "fault_walk": "test_fault_walk.py walks its steps",
    "notices": "takes long at any size",
    "nights": "is no command: the nights of `many_nights` and `rules` are its",
    "quotes": "takes long at any size",
    "recovery_walk": "test_recovery_walk.py walks its steps",
    "published_runs": "is no command: `fit_speed` and `validate_speed` read the published runs by it",
    "rules": "takes long at any size",
    "save_intervals": "reads all of the shared data, which takes a minute",
    "showback": "takes long at any size",
    "spend_console": "takes long at any size",
    "storm": "takes long at any size",
    "terraform_nodes": "tests/integration/test_terraform_bench.py runs it",
    "upload": "takes long at any size",
}


def test_every_bench_that_a_page_names_runs_here_or_is_an_exception() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile"))]
    named = {name for page in pages for name in re.findall(r"tests[./]bench[./](\w+)", page.read_text("utf-8"))}
    run_here = {words[0] for words, _ in (each.values for each in BENCHES)}
    assert named - run_here - EXCEPTIONS.keys() == set()
    assert EXCEPTIONS.keys() - named == set(), "no page names them any more"
    assert EXCEPTIONS.keys() & run_here == set()
    assert {name for name in run_here if not (ROOT / "tests" / "bench" / f"{name}.py").is_file()} == set()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files with a short name: some benches make sockets in it."""
    with TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "last"), BENCHES)
def test_a_bench_ends_as_it_should(words: list[str], last: str, folder: Path) -> None:
    name, *more = (word.format(folder=folder) for word in words)
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{name}", *more],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert last in done.stdout.strip().splitlines()[-1]
    # Where what it needs is not here the test is skipped, so that a bench which skips itself fails.
    assert "skipped" not in done.stdout
