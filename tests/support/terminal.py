"""Run the command in a terminal, as a person sees it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

from tests.support.repository import ROOT

COMMAND = [sys.executable, "-c", "from router.cli.main import main; main()"]


def run_in_terminal(*words: str, **environment: str) -> tuple[int, str]:
    """Return the exit code of a command whose stdout and stderr are one terminal, and what it shows."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    known = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([*COMMAND, *words], cwd=ROOT, env=known, stdin=theirs, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    shown = b""
    # The end of a terminal whose last writer has gone is an error on Linux.
    with suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")
