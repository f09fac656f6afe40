"""Shells complete commands, options and live values."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from router.cli.commands import TABLE
from tests.support.forked import run_forked
from tests.support.repository import ROOT

COMMAND = [sys.executable, "-c", "from router.cli.main import main; main()"]


def complete(line: str, cwd: Path = ROOT, **environment: str) -> list[str]:
    """Return the words that bash is offered to complete ``line``, which ends where the cursor is."""
    asked = {"_STEPFARE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = run_forked((), environment={**os.environ, **asked, **environment}, folder=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_groups_and_options() -> None:
    assert complete("stepfare le") == ["ledger"]
    assert complete("stepfare ledger ") == list(TABLE.children("ledger"))
    assert complete("stepfare ledger ex") == ["export"]
    assert complete("stepfare plan --time") == ["--time-limit"]
    assert complete("stepfare prices diff --outp") == ["--output"]
    assert complete("stepfare showback --gr") == ["--group-by"]
    assert complete("stepfare plan -o ") == ["table", "wide", "json", "gantt"]


def test_plan_takes_its_subcommands_and_files(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "dialogue.yaml").touch()
    assert complete("stepfare plan ", tmp_path) == [*TABLE.children("plan"), "dialogue.yaml", "jobs/"]
    assert complete("stepfare plan di", tmp_path) == ["diff", "dialogue.yaml"]
    for words in ("quote", "validate", "plan what-if"):
        assert complete(f"stepfare {words} ", tmp_path) == ["dialogue.yaml", "jobs/"]


def test_accelerators() -> None:
    assert complete("stepfare offers --accelerator H1") == ["H100", "H100-PCIe", "H100-NVL"]
    assert complete("stepfare prices history --accelerator B") == ["B200", "B300"]


def test_jobs_of_the_plan_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"jobs": [{"job": "bert"}, {"job": "llama"}]}', encoding="utf-8")
    assert complete("stepfare explain plan.json ", tmp_path) == ["bert", "llama"]
    assert complete("stepfare explain plan.json l", tmp_path) == ["llama"]
    assert complete("stepfare explain no.json ", tmp_path) == []


def test_live_values_and_nothing_where_there_is_no_state(tmp_path: Path) -> None:
    assert complete("stepfare plan --book em", STEPFARE_HOME=str(tmp_path)) == ["embedded"]
    assert complete("stepfare logs ", STEPFARE_HOME=str(tmp_path)) == []
    assert complete("stepfare status ", STEPFARE_HOME=str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str) -> None:
    done = subprocess.run([*COMMAND, "completion", shell], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "_STEPFARE_COMPLETE=complete_" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)
