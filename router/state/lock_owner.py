"""The process that holds a lock or a lease. It asks the operating system about processes."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROC = Path("/proc")
_STATE_AND_START = (0, 19)
_DEAD = ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A process on a machine.

    ``started`` distinguishes it from a later process of the same number, ``boot`` its machine from another one of the
    same name (and from a container on it, whose process numbers are others).
    """

    host: str
    pid: int
    started: str
    boot: str

    @classmethod
    def of_this_process(cls) -> LockOwner:
        """Return the owner for this process, on this machine."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_of(pid) or "", _boot_id())

    def is_gone(self) -> bool:
        """True if the process is surely gone. False for a process on another machine, which cannot be known here."""
        if self.host != socket.gethostname() or self.boot != _boot_id():
            return False
        if not psutil.pid_exists(self.pid):
            return True
        started = _start_of(self.pid)
        return started is not None and started != self.started


def _start_of(pid: int) -> str | None:
    """Return when a process started, as the system counts; None if unknown.

    It is "" for a dead process that nobody has waited for.
    """
    if _PROC.exists():
        try:
            # The start is in ticks since the machine started, so setting the clock does not change it. The name may
            # hold spaces.
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, start = (fields[i] for i in _STATE_AND_START)
        return "" if state in _DEAD else start
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def _boot_id() -> str:
    """Return an id of this start of this machine, and of the numbering of processes in it."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return f"{psutil.boot_time():.0f}"
