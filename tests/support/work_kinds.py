"""Kinds of long work for tests; functions at the top level, as child processes import them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from pricing.problems import InvalidInputError
from router.console.work import WorkError, WorkFunction, worker_settings

SUM, WRONG, FOREVER = "test-sum", "test-wrong", "test-forever"
Report = Callable[[str], None]


def add_up(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """The sum of the numbers, with a message for each."""
    for number in request["numbers"]:
        report(f"adding {number}")
    return {"sum": sum(request["numbers"]), "folder": str(worker_settings().folder), "nice": os.nice(0)}


def go_wrong(request: dict[str, Any], report: Report) -> dict[str, Any]:
    if request["how"] == "input":
        raise InvalidInputError.single("no such job", field="job")
    if request["how"] == "work":
        raise WorkError("there is no book")
    if request["how"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    raise KeyError("secret-of-the-server")


def wait_for_ever(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Says that it has begun, and never ends."""
    report(f"process {os.getpid()}")
    threading.Event().wait()
    return {}


FUNCTIONS: dict[str, WorkFunction] = {SUM: add_up, WRONG: go_wrong, FOREVER: wait_for_ever}
