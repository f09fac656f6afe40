"""The README is true: its commands run, its transcript is what `make plan` prints, its targets exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STEPFARE = Path(sys.executable).with_name("stepfare")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _commands() -> list[str]:
    lines = [line for block in _blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return [line.removeprefix("$ ").split("#")[0].strip() for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, where the commands may write."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", place / "examples")
    return place


def test_every_stepfare_command_runs_in_the_order_shown(folder: Path) -> None:
    commands = [c for c in _commands() if c.startswith("stepfare ")]
    assert len(commands) >= 6
    for command in commands:
        words = [str(STEPFARE), *shlex.split(command)[1:]]
        environment = {**os.environ, "STEPFARE_HOME": str(folder / "home")}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout or "--out" in command, command


def test_the_make_targets_shown_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = [c.split()[1] for c in _commands() if c.startswith("make ")]
    assert shown == ["plan", "test"]
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_transcript_is_what_make_plan_prints(folder: Path) -> None:
    """Every cell. When this fails and the plan is right: STEPFARE_WRITE_GOLDEN=1 with this test writes it anew."""
    recipe = re.search(r"^\t@\$\(BIN\)/stepfare (plan .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    arguments = shlex.split(recipe.group(1).replace("$(NOW)", "2026-11-21T18:00:00Z"))
    done = subprocess.run([str(STEPFARE), *arguments], cwd=folder, capture_output=True, text=True, check=True)
    shown, printed = _blocks("text")[0], done.stdout
    if os.environ.get("STEPFARE_WRITE_GOLDEN"):
        (ROOT / "README.md").write_text(README.replace(shown, printed), encoding="utf-8")
        return
    assert shown.splitlines() == printed.splitlines()
    assert len(_jobs(shown)) >= 16


def _jobs(text: str) -> set[str]:
    """First column of the table."""
    table = text.split("JOB ", 1)[1].split("\n\n", 1)[0]
    return {line.split()[0] for line in table.splitlines()[1:]}
