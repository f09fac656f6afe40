"""A terminal gets wider tables, bold headings and coloured errors and warnings; a pipe gets none of these."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.repository import ROOT

COMMAND = [sys.executable, "-c", "from router.cli.main import main; main()"]


def run_in_terminal(*words: str, **environment: str) -> tuple[int, str]:
    """Return the exit code of a command whose stdout and stderr are one terminal, and what it shows."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    known = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([*COMMAND, *words], cwd=ROOT, env=known, stdin=theirs, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    shown = b""
    # The end of a terminal whose last writer has gone is an error on Linux.
    with suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")


OFFERS = ("offers", "--book", "embedded", "--now", "2026-11-21T18:00Z", "--limit", "40", "--cloud", "azure")


def test_tables_use_the_width_of_the_terminal() -> None:
    code, shown = run_in_terminal(*OFFERS, COLUMNS="160", NO_COLOR="1")
    piped = run(*OFFERS).stdout
    assert code == 0
    assert "…" in piped
    assert "…" not in shown
    assert max(map(len, piped.splitlines())) <= 80 < max(map(len, shown.splitlines())) <= 160


def test_the_heading_of_a_table_is_bold() -> None:
    _, shown = run_in_terminal(*OFFERS, COLUMNS="80")
    piped = run(*OFFERS)
    assert "\x1b[1mPLACE " in shown
    assert shown.count("\x1b[") == 2
    assert shown.replace("\x1b[1m", "").replace("\x1b[0m", "") == piped.stderr + piped.stdout


WRONG = ("validate", "examples/nothing.yaml")


def test_an_error_is_red_and_bold_in_a_terminal() -> None:
    code, shown = run_in_terminal(*WRONG)
    assert code == 2
    assert shown.count("\x1b[31m\x1b[1merror\x1b[0m: ") == 1
    assert shown.count("\x1b[") == 3


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
def test_a_terminal_without_colours_shows_what_a_pipe_gets(environment: dict[str, str]) -> None:
    code, shown = run_in_terminal(*WRONG, **environment)
    piped = run(*WRONG)
    assert code == piped.exit_code
    assert shown == piped.stderr
    assert "error: " in shown
    assert "\x1b" not in shown


@pytest.mark.slow
def test_a_warning_is_yellow_in_a_terminal(tmp_path: Path) -> None:
    report = ("bills", "reconcile", "--month", "2026-11", "--now", "2026-12-03T09:00Z")
    _, shown = run_in_terminal(*report, STEPFARE_HOME=str(tmp_path))
    assert "\x1b[33mno bill is stored" in shown
    _, plain = run_in_terminal(*report, STEPFARE_HOME=str(tmp_path), NO_COLOR="1")
    assert "no bill is stored" in plain
    assert "\x1b" not in plain
