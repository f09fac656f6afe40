"""The arrows are enforced: what breaks one makes the check fail, by name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT

ARROWS = "Arrows point down: router, then terraform and providers, then pricing"
CORE = "The core does no I/O"
ONE_EACH = "One module each calls a solver, runs Terraform and serves HTTP"
SDKS = "Cloud SDKs stay in their adapter"
INSIDE = "Inside router: a room imports only rooms below it"
CIRCLES = "No package has a circle inside"
AGENT = "The node agent needs the standard library alone"
ANSWERS = "What a cloud answers is read without touching a network, a disk or an SDK"
BOOKS = "Only the shell reads and writes price books"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the four packages and their contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def _broken(tree: Path) -> tuple[set[str], str]:
    """Names of the contracts that ``lint-imports`` finds broken in ``tree``, and all it printed."""
    run = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    broken = set(re.findall(r"^(.+) BROKEN\b", run.stdout, flags=re.MULTILINE))
    assert (run.returncode == 0) == (not broken), run.stdout + run.stderr
    return broken, run.stdout


def test_the_tree_keeps_its_contracts(tree: Path) -> None:
    broken, output = _broken(tree)
    assert broken == set(), output


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("pricing/planted.py", "import router.jobs", ARROWS),
        ("providers/planted.py", "import terraform", ARROWS),
        ("terraform/planted.py", "import providers", ARROWS),
        ("router/jobs/planted.py", "import router.planning", INSIDE),
        ("router/unplaced/__init__.py", "", INSIDE),
        ("router/spot/planted.py", "import router.config.deploy_file", INSIDE),
        ("router/controller/planted.py", "import router.config", INSIDE),
        ("router/planning/plan.py", "import router.planning.planner", CIRCLES),
        ("router/coordinator/handlers.py", "import starlette", ONE_EACH),
        ("router/planning/planted.py", "import sqlite3", CORE),
        ("pricing/planted.py", "from os import environ", CORE),
        ("router/planning/planted.py", "import pulp", ONE_EACH),
        ("router/cli/planted.py", "import python_terraform", ONE_EACH),
        ("router/cli/planted.py", "import boto3.session", SDKS),
        ("router/planning/planted.py", "import pricing.book_file", BOOKS),
        ("router/agent/planted.py", "import pricing.money", AGENT),
        ("providers/aws/parse/planted.py", "import boto3", ANSWERS),
    ],
)
def test_a_planted_import_breaks_its_contract(tree: Path, module: str, statement: str, contract: str) -> None:
    planted = tree / module
    planted.parent.mkdir(exist_ok=True)
    with planted.open("a", encoding="utf-8") as file:
        file.write(f"{statement}\n")
    broken, output = _broken(tree)
    assert contract in broken, output
