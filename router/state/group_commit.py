"""Group commit: one fsync of the write-ahead log makes all waiting commits durable."""

from __future__ import annotations

import os
import threading
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class GroupCommitError(Exception):
    """The disk did not take the commit; the message says why."""


class GroupCommit:
    """Group commit for the write-ahead log of a SQLite database, to which commits are appended in order.

    Where there is no log, SQLite itself waits for the disk.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._change = threading.Condition()
        self._is_syncing = False
        self._requested = self._durable = 0

    def sync(self) -> None:
        """Wait until all that was committed before the call is on the disk. GroupCommitError."""
        with self._change:
            self._requested += 1
            own_request = self._requested
            # The lock is free while a thread waits for the disk. Threads whose commits that wait covers continue
            # meanwhile and may ask again, even if the same thread is always the first to begin the next wait.
            while self._is_syncing and self._durable < own_request:
                self._change.wait()
            if self._durable >= own_request:
                return  # A wait that began after this request covers it.
            self._is_syncing, upto = True, self._requested
        succeeded = False
        try:
            self._sync_log()
            succeeded = True
        except OSError as error:
            raise GroupCommitError(error.strerror or type(error).__name__) from None
        finally:
            with self._change:
                self._is_syncing = False
                if succeeded:
                    self._durable = upto
                self._change.notify_all()

    def _sync_log(self) -> None:
        try:
            # Closing a handle of this file releases no lock: SQLite has its locks on the other two files.
            handle = os.open(self._log, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            full = getattr(fcntl, "F_FULLFSYNC", None)
            if full is None:
                os.fsync(handle)
            else:
                fcntl.fcntl(handle, full)  # The fsync of macOS does not wait for the disk.
        finally:
            os.close(handle)
