"""Limits in seconds on a machine that has other tests to run at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def on_a_busy_machine(seconds: float) -> float:
    """How long what takes ``seconds`` on a machine of its own may take on this one: longer by the processes that wanted
    each core in the last minute, its own among them."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def in_time(began: float, seconds: float) -> bool:
    """Whether what began at that moment of the monotonic clock may still take its time."""
    return time.monotonic() - began < on_a_busy_machine(seconds)


def eventually(
    what: Callable[[], object], seconds: float = 30.0, *, why: str | Callable[[], str] = "", pause: float = 0.01
) -> None:
    """Wait until ``what`` holds; fail, and say why, when it does not in time."""
    began = time.monotonic()
    while not what():
        if not in_time(began, seconds):
            raise AssertionError(f"waited in vain {why if isinstance(why, str) else why()}".rstrip())
        time.sleep(pause)
