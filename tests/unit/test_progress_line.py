"""Progress on a terminal: the task at once, its phase and the time from two seconds on, and nothing left behind."""

from __future__ import annotations

import io
import sys

import pytest

from router.cli import console
from router.cli.console import ProgressLine, format_seconds


class Screen(io.StringIO):
    """A terminal that shows one line."""

    def isatty(self) -> bool:
        return True

    def visible(self) -> str:
        """Return what a person sees: each carriage return goes back to the first column."""
        cells: list[str] = []
        for part in self.getvalue().split("\n")[-1].split("\r"):
            cells[: len(part)] = list(part)
        return "".join(cells).rstrip()


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_phase_and_time_are_shown_from_two_seconds_on(watch: Watch) -> None:
    screen = Screen()
    line = ProgressLine("planning 3 jobs", screen, clock=watch)
    line.draw()
    assert screen.visible() == "planning 3 jobs ..."
    watch.now += 1.9
    line.show_phase("filtering 8,000 offers for 3 jobs")
    assert screen.visible() == "planning 3 jobs ..."
    watch.now += 1.2
    line.draw()
    assert screen.visible() == "filtering 8,000 offers for 3 jobs (3 s)"
    watch.now += 70
    line.show_phase("solving 12 variables, 3 rows")
    assert screen.visible() == "solving 12 variables, 3 rows (1 min 13 s)"
    line.end()
    assert screen.visible() == ""


def test_a_task_without_phases_shows_the_time(watch: Watch) -> None:
    screen = Screen()
    line = ProgressLine("asking 3 clouds", screen, clock=watch)
    watch.now += 5
    line.draw()
    assert screen.visible() == "asking 3 clouds (5 s)"


def test_a_line_never_fills_the_terminal_so_that_it_never_wraps(watch: Watch) -> None:
    screen = Screen()
    ProgressLine("x" * 200, screen, 40, watch).draw()
    assert len(screen.visible()) == 39


def test_what_others_write_stands_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with console.progress("reading the ledger"):
        assert screen.visible() == "reading the ledger ..."
        console.note("2 bills came late")
        assert screen.getvalue().endswith("\r2 bills came late\n")
    assert screen.visible() == ""


def test_nothing_is_shown_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress("reading the ledger") as show_phase:
        show_phase("halfway")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("seconds", "text"), [(2.9, "2 s"), (59.9, "59 s"), (60, "1 min 00 s"), (3605, "60 min 05 s")])
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
