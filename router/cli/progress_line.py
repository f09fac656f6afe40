"""One line of a terminal that says what a command does now, and for how long once that takes over two seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TextIO

from router.render.tables import clip_text

_QUIET_S = 2.0
_TICK_S = 1.0
# One lock for all lines. No process is forked while a line is being drawn: a child would wait for the lock forever.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class ProgressLine:
    """The line of one task, on a stream that is a terminal of ``width`` columns."""

    def __init__(self, text: str, stream: TextIO, width: int = 80, clock: Callable[[], float] = time.monotonic) -> None:
        self._text, self._stream, self._width, self._clock = text, stream, width, clock
        self._began = clock()
        self._phase = ""
        self._shown = 0
        self._ended = threading.Event()

    def show_phase(self, phase: str) -> None:
        """Say what the task is at now."""
        with _lock:
            self._phase = phase
            self.draw()

    def draw(self) -> None:
        """Write the line over what it showed before."""
        with _lock:
            line = clip_text(self.line(), self._width - 1)
            self._stream.write(f"\r{line.ljust(self._shown)}")
            self._stream.flush()
            self._shown = len(line)

    def line(self) -> str:
        """Return the task, from two seconds on its phase instead, and the time since it began."""
        seconds = self._clock() - self._began
        if seconds < _QUIET_S:
            return f"{self._text} ..."
        return f"{self._phase or self._text} ({format_seconds(seconds)})"

    def clear(self) -> None:
        """Remove the line from the screen, so that others may write; the next tick draws it again."""
        with _lock:
            if self._shown:
                self._stream.write(f"\r{' ' * self._shown}\r")
                self._stream.flush()
            self._shown = 0

    def start_ticking(self) -> None:
        """Draw the line now, and again every second in a thread, until :meth:`end`."""
        self.draw()
        threading.Thread(target=self._tick, daemon=True, name="progress").start()

    def end(self) -> None:
        """Stop drawing and remove the line."""
        with _lock:
            self._ended.set()
            self.clear()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            with _lock:
                if not self._ended.is_set():
                    self.draw()


def format_seconds(seconds: float) -> str:
    """Return a length of time such as ``14 s`` or ``2 min 05 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
