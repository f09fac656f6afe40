"""Which process it is that holds something. An edge: asks the system about processes."""

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
class Holder:
    """A process: ``started`` tells it from a later one of the same number, ``boot`` its machine from another one of
    the same name (and from a container on it, whose process numbers are others)."""

    host: str
    pid: int
    started: str
    boot: str

    @classmethod
    def of_this_process(cls) -> Holder:
        """This process, on this machine."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _started(pid) or "", _boot())

    def is_gone(self) -> bool:
        """It surely does not run any more. False for a process elsewhere: nobody here can know."""
        if self.host != socket.gethostname() or self.boot != _boot():
            return False
        if not psutil.pid_exists(self.pid):
            return True
        started = _started(self.pid)
        return started is not None and started != self.started


def _started(pid: int) -> str | None:
    """When a process started, as the system counts; "" for a dead one that nobody has waited for; None: unknown."""
    if _PROC.exists():
        try:
            # In ticks since the machine started: setting the clock does not change it. The name may hold spaces.
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


def _boot() -> str:
    """Which start of which machine this is, and which numbering of processes in it."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return f"{psutil.boot_time():.0f}"
