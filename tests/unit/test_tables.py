"""Tables are as wide as the terminal: wider ones clip less, narrower ones and pipes have 80 columns."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from pricing.units import format_count
from router.cli import console
from router.render.tables import PLAIN, WIDTH, Screen, format_table

HEADER = ("JOB", "PLACE", "COST")
ROWS = [("a-job-with-quite-a-long-name", "aws/us-east-1a", "12.50"), ("short", "gcp/europe-west4-b", "7.00")]
LIMITS = {"JOB": 10, "PLACE": 8}
RIGHT = frozenset({"COST"})


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def draw(width: int) -> list[str]:
    return format_table(HEADER, ROWS, RIGHT, LIMITS, Screen(width)).splitlines()


def test_a_table_of_80_columns_is_as_it_always_was() -> None:
    assert draw(WIDTH) == format_table(HEADER, ROWS, RIGHT, LIMITS).splitlines() == draw(40)
    assert draw(WIDTH)[1] == "a-job…name aws/…-1a 12.50"


def test_a_wide_terminal_clips_nothing_that_fits() -> None:
    assert draw(100)[1:] == [
        "a-job-with-quite-a-long-name aws/us-east-1a     12.50",
        "short                        gcp/europe-west4-b  7.00",
    ]


def test_clipped_columns_share_what_is_left() -> None:
    long = [("j" * 100, "p" * 100, "1.00")]
    table = format_table(HEADER, long, RIGHT, LIMITS, Screen(120)).splitlines()
    assert max(map(len, table)) == 120
    job, place, _ = table[1].split()
    assert (len(job), len(place)) == (58, 56)


def test_a_table_that_is_too_wide_already_keeps_its_limits() -> None:
    wide = [("j" * 30, "p" * 30, "9" * 120)]
    assert format_table(HEADER, wide, RIGHT, LIMITS, Screen(90)) == format_table(HEADER, wide, RIGHT, LIMITS)
    assert format_table(HEADER, [], RIGHT, LIMITS, Screen(200)) == "JOB PLACE COST"


@pytest.mark.parametrize(("columns", "width"), [("132", 132), ("60", WIDTH), ("", WIDTH)])
def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    assert console.screen(Terminal()).width == width
    assert console.screen(Terminal(), Path("out.txt")) is console.screen(io.StringIO()) is PLAIN


def test_the_heading_is_bold_in_a_terminal_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    head, *rows = format_table(HEADER, ROWS, RIGHT, LIMITS, console.screen(Terminal())).splitlines()
    assert head.startswith("\x1b[1mJOB ")
    assert head.endswith("COST\x1b[0m")
    assert "\x1b" not in "".join(rows)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in format_table(HEADER, ROWS, RIGHT, LIMITS, console.screen(Terminal()))


def test_a_count_and_its_noun_agree() -> None:
    assert [format_count(n, "gang") for n in (0, 1, 2)] == ["0 gangs", "1 gang", "2 gangs"]
    assert [format_count(n, "entry", "entries") for n in (1, 1234)] == ["1 entry", "1,234 entries"]
