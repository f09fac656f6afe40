"""The file with which the sandbox's machines run out, and its lines that close a place.

``stock`` in the folder that plays the cloud (STEPFARE_SANDBOX; terraform/modules/sandbox/start.sh says what may stand
there). A line ``closed PLACE UNTIL BY``: nothing is to be had in that zone or region before UNTIL, seconds since 1970,
or ``-``: until it is opened. Such a line runs out by itself, so that whoever closed a place may die.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FILE = "stock"
_LOCK = "stock.lock"
_WORD, _ENDLESS = "closed", "-"


@dataclass(frozen=True, slots=True)
class Closed:
    """A place that is closed, ``until`` seconds since 1970 or until it is opened, ``by`` whom ("": nobody said)."""

    place: str
    until: int | None
    by: str = ""

    @property
    def line(self) -> str:
        """As it stands in the file."""
        return " ".join((_WORD, self.place, _ENDLESS if self.until is None else str(self.until), self.by)).rstrip()


def read_line(line: str) -> Closed | None:
    """What a line closes; None for any other line."""
    match line.split():
        case [word, place, until, *by] if word == _WORD and (until == _ENDLESS or until.isdecimal()):
            return Closed(place, None if until == _ENDLESS else int(until), " ".join(by))
        case _:
            return None


def with_closed(text: str, closed: Closed) -> str:
    """The file's text with that line in it, once."""
    return f"{_without(text, lambda one: one == closed)}{closed.line}\n"


def with_opened(text: str, place: str, by: str | None = None) -> str:
    """The text without the lines that close ``place``; ``by``: without this one's only."""
    return _without(text, lambda one: one.place == place and by in (None, one.by))


def _without(text: str, gone: Callable[[Closed], bool]) -> str:
    lines = (line for line in text.splitlines() if (one := read_line(line)) is None or not gone(one))
    return "".join(f"{line}\n" for line in lines)


class Stock:
    """The file in ``folder``, which is made when a place is closed. Whoever changes it here does so one at a time, and
    who reads finds it whole; other lines stay. OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def closed(self, now: float) -> tuple[Closed, ...]:
        """What is closed at a moment, in seconds since 1970."""
        found = (read_line(line) for line in self._text().splitlines())
        return tuple(one for one in found if one is not None and (one.until is None or one.until > now))

    def close(self, place: str, until: float | None, by: str) -> Closed:
        """None to be had there from now on. ``place`` and ``by`` are words without spaces."""
        closed = Closed(place, None if until is None else math.ceil(until), by)
        if len(closed.line.split()) != len(("word", "place", "until", "by")):
            raise ValueError(f"{place!r} by {by!r} cannot be written in {FILE}")
        with self._alone():
            self._put(with_closed(self._text(), closed))
        return closed

    def open(self, place: str, by: str | None = None) -> bool:
        """Takes back what closed it, ``by`` that one only; whether there was anything."""
        if not self._folder.is_dir():
            return False
        with self._alone():
            before = self._text()
            after = with_opened(before, place, by)
            if after != before:
                self._put(after)
            return after != before

    def _text(self) -> str:
        try:
            return (self._folder / FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _put(self, text: str) -> None:
        part = self._folder / f".{FILE}.{os.getpid()}.part"
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(self._folder / FILE)
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
