"""Limits in seconds for what takes a minute or so, on a machine that has other tests to run at the same time."""

from __future__ import annotations

import os


def on_a_busy_machine(seconds: float) -> float:
    """How long what takes ``seconds`` on a machine of its own may take on this one: longer by the processes that wanted
    each core in the last minute, its own among them."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
