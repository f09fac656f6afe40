"""Commits of many threads on the disk by one wait for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class SettleError(Exception):
    """The disk did not take it; the message says why."""


class Settling:
    """The log of a SQLite database, to which commits are appended in order. Where there is none, SQLite itself waits
    for the disk."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._change = threading.Condition()
        self._busy = False
        self._asked = self._settled = 0

    def settle(self) -> None:
        """What was committed before the call is on the disk when it returns. SettleError."""
        with self._change:
            self._asked += 1
            mine = self._asked
            # Nobody holds the lock while the disk is waited for: those that this wait was for go on meanwhile and ask
            # again, however often the same one is first to begin the next.
            while self._busy and self._settled < mine:
                self._change.wait()
            if self._settled >= mine:
                return  # by one that began after this was asked
            self._busy, upto = True, self._asked
        fine = False
        try:
            self._wait_for_the_disk()
            fine = True
        except OSError as error:
            raise SettleError(error.strerror or type(error).__name__) from None
        finally:
            with self._change:
                self._busy = False
                if fine:
                    self._settled = upto
                self._change.notify_all()

    def _wait_for_the_disk(self) -> None:
        try:
            # Of this file closing one handle gives up no lock: SQLite has its locks on the other two.
            handle = os.open(self._log, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            full = getattr(fcntl, "F_FULLFSYNC", None)
            if full is None:
                os.fsync(handle)
            else:
                fcntl.fcntl(handle, full)  # macOS: its fsync does not wait for the disk
        finally:
            os.close(handle)
