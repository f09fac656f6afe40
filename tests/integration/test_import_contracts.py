"""The arrows are enforced: what breaks one makes the check fail, by name."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT, ran

ARROWS = "Arrows point down: router, then terraform and providers, then pricing"
CORE = "The core does no I/O"
FEW = "Few modules call a solver, run Terraform, serve HTTP and train"
SDKS = "Cloud SDKs stay in their adapter"
INSIDE = "Inside router: a room imports only rooms below it"
CIRCLES = "No package has a circle inside"
AGENT = "The node agent needs the standard library alone"
ANSWERS = "What a cloud answers is read without touching a network, a disk or an SDK"
BOOKS = "Only the shell reads and writes price books"


#: Imports that are planted: where, the line, the contract that it breaks, and what is said of it below that contract.
PLANTED = (
    ("pricing/planted.py", "import router.jobs", ARROWS, "pricing.planted -> router.jobs"),
    ("providers/planted.py", "import terraform", ARROWS, "providers.planted -> terraform"),
    ("terraform/planted.py", "import providers", ARROWS, "terraform.planted -> providers"),
    ("router/jobs/planted.py", "import router.planning", INSIDE, "router.jobs.planted -> router.planning"),
    ("router/unplaced/__init__.py", "", INSIDE, "router.unplaced"),
    ("router/spot/planted.py", "import router.config.settings_files", INSIDE, "router.spot.planted -> router.config."),
    ("router/controller/planted.py", "import router.config", INSIDE, "router.controller.planted -> router.config"),
    (
        "router/planning/document/plan.py",
        "import router.planning.planner",
        CIRCLES,
        "No cycles are allowed in router.planning.",
    ),
    ("router/coordinator/handlers.py", "import starlette", FEW, "router.coordinator.handlers -> starlette"),
    ("router/planning/planted.py", "import sqlite3", CORE, "router.planning.planted -> sqlite3"),
    ("pricing/planted.py", "from os import environ", CORE, "pricing.planted -> os"),
    ("router/planning/planted.py", "import pulp", FEW, "router.planning.planted -> pulp"),
    ("router/cli/planted.py", "import python_terraform", FEW, "router.cli.planted -> python_terraform"),
    ("router/cli/planted.py", "import torch", FEW, "router.cli.planted -> torch"),
    ("router/cli/planted.py", "import boto3.session", SDKS, "router.cli.planted -> boto3"),
    ("router/planning/planted.py", "import pricing.book_file", BOOKS, "router.planning.planted -> pricing.book_file"),
    ("router/agent/planted.py", "import pricing.money", AGENT, "router.agent.planted -> pricing.money"),
    ("providers/aws/parse/planted.py", "import boto3", ANSWERS, "providers.aws.parse.planted -> boto3"),
)


def _copy(folder: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _broken(tree: Path) -> dict[str, str]:
    """What ``lint-imports`` says of each contract that it finds broken in ``tree``, by its name."""
    run = ran(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200", "NO_COLOR": "1"},
    )
    names = re.findall(r"^(.+) BROKEN\b", run.stdout, flags=re.MULTILINE)
    assert (run.returncode == 0) == (not names), run.stdout + run.stderr
    told = run.stdout.partition("Broken contracts")[2]
    sections = re.split(r"^(.+)\n-{5,}$", told, flags=re.MULTILINE)
    said = dict(zip(sections[1::2], sections[2::2], strict=True))
    return {name: said[name] for name in names}


def test_the_tree_keeps_its_contracts(tmp_path: Path) -> None:
    assert _broken(_copy(tmp_path)) == {}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each contract that a tree with all planted imports breaks."""
    tree = _copy(tmp_path_factory.mktemp("planted"))
    for module, statement, _, _ in PLANTED:
        planted = tree / module
        planted.parent.mkdir(exist_ok=True)
        with planted.open("a", encoding="utf-8") as file:
            file.write(f"{statement}\n")
    return _broken(tree)


@pytest.mark.parametrize(("module", "statement", "contract", "told"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    broken: dict[str, str], module: str, statement: str, contract: str, told: str
) -> None:
    assert told in re.sub(r" +", " ", broken[contract])
