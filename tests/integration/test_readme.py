"""The README is true and short: its transcript is what `make plan` prints, its targets exist, the tour runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.doc_pages import DOCS, STEPFARE, blocks
from tests.support.repository import ROOT

README = ROOT / "README.md"
TOUR = DOCS / "commands.md"
MOST_LINES, MOST_WORDS = 150, 1200


def _commands(page: Path) -> list[str]:
    """The commands of the `console` blocks of a page, without their comments."""
    shown = (command for block in blocks(page, "console") for command in block.commands())
    return [command.split("#")[0].strip() for command in shown]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, where the commands may write."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", place / "examples")
    return place


def test_it_is_read_in_two_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert len(text.split()) <= MOST_WORDS


@pytest.mark.slow
def test_every_command_of_the_tour_runs_in_the_order_shown(folder: Path) -> None:
    commands = _commands(TOUR)
    assert len(commands) >= 20
    for command in commands:
        words = [str(STEPFARE), *shlex.split(command)[1:]]
        environment = {**os.environ, "STEPFARE_HOME": str(folder / "home")}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout or "--out" in command, command


def test_the_make_targets_shown_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = [c.split()[1] for c in _commands(README) if c.startswith("make ")]
    assert shown == ["plan", "test"]
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.slow
def test_the_transcript_is_what_make_plan_prints(folder: Path) -> None:
    """Every cell. When this fails and the plan is right: STEPFARE_WRITE_GOLDEN=1 with this test writes it anew."""
    recipe = re.search(r"^\t@\$\(BIN\)/stepfare (plan .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    arguments = shlex.split(recipe.group(1).replace("$(NOW)", "2026-11-21T18:00:00Z"))
    done = subprocess.run([str(STEPFARE), *arguments], cwd=folder, capture_output=True, text=True, check=True)
    shown, printed = blocks(README, "text")[0].text, done.stdout
    if os.environ.get("STEPFARE_WRITE_GOLDEN"):
        README.write_text(README.read_text(encoding="utf-8").replace(shown, printed), encoding="utf-8")
        return
    assert shown.splitlines() == printed.splitlines()
    assert len(_jobs(shown)) >= 16


def _jobs(text: str) -> set[str]:
    table = text.split("JOB ", 1)[1].split("\n\n", 1)[0]
    return {line.split()[0] for line in table.splitlines()[1:]}
