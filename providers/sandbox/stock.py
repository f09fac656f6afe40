"""Stock file of the sandbox, with the lines that close a zone or region.

``stock`` is in the folder of the simulated cloud (STEPFARE_SANDBOX; terraform/modules/sandbox/start.sh describes its
lines). A line ``closed PLACE UNTIL BY``: no machine can be obtained in that zone or region before UNTIL, seconds since
1970, or ``-``: until it is opened. Such a line expires by itself, so that the process that closed a place may die.
"""

from __future__ import annotations

import fcntl
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pricing.atomic_file import make_private_folder, write_atomic

FILE = "stock"
_LOCK = "stock.lock"
_WORD, _ENDLESS = "closed", "-"


@dataclass(frozen=True, slots=True)
class ClosedPlace:
    """A place that is closed, ``until`` seconds since 1970 or until it is opened, ``by`` a name ("": not stated)."""

    place: str
    until: int | None
    by: str = ""

    @property
    def line(self) -> str:
        """Return the line as it stands in the file."""
        return " ".join((_WORD, self.place, _ENDLESS if self.until is None else str(self.until), self.by)).rstrip()


def read_line(line: str) -> ClosedPlace | None:
    """Return what a line closes; None for any other line."""
    match line.split():
        case [word, place, until, *by] if word == _WORD and (until == _ENDLESS or until.isdecimal()):
            return ClosedPlace(place, None if until == _ENDLESS else int(until), " ".join(by))
        case _:
            return None


def add_closed_line(text: str, closed: ClosedPlace) -> str:
    """Return the file's text with that line in it, once."""
    return f"{_without(text, lambda place: place == closed)}{closed.line}\n"


def remove_closed_lines(text: str, place: str, by: str | None = None) -> str:
    """Return the text without the lines that close ``place``; ``by``: without those of this name only."""
    return _without(text, lambda closed: closed.place == place and by in (None, closed.by))


def _without(text: str, gone: Callable[[ClosedPlace], bool]) -> str:
    lines = (line for line in text.splitlines() if (one := read_line(line)) is None or not gone(one))
    return "".join(f"{line}\n" for line in lines)


class StockFile:
    """The stock file in ``folder``, which is made when a place is closed.

    Writers change it one at a time, and a reader finds it whole; other lines stay. OSError when it cannot be read or
    written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def closed(self, now: float) -> tuple[ClosedPlace, ...]:
        """Return what is closed at a moment, in seconds since 1970."""
        found = (read_line(line) for line in self._text().splitlines())
        return tuple(one for one in found if one is not None and (one.until is None or one.until > now))

    def close(self, place: str, until: float | None, by: str) -> ClosedPlace:
        """Close a place from now on. ``place`` and ``by`` are words without spaces."""
        closed = ClosedPlace(place, None if until is None else math.ceil(until), by)
        if len(closed.line.split()) != len(("word", "place", "until", "by")):
            raise ValueError(f"{place!r} by {by!r} cannot be written in {FILE}")
        with self._lock():
            self._put(add_closed_line(self._text(), closed))
        return closed

    def open(self, place: str, by: str | None = None) -> bool:
        """Remove the lines that closed the place, ``by`` that name only; return whether there were any."""
        if not self._folder.is_dir():
            return False
        with self._lock():
            before = self._text()
            after = remove_closed_lines(before, place, by)
            if after != before:
                self._put(after)
            return after != before

    def _text(self) -> str:
        try:
            return (self._folder / FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _put(self, text: str) -> None:
        write_atomic(self._folder / FILE, text, durable=False)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        make_private_folder(self._folder)
        with (self._folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
