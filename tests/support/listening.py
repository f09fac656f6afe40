"""Wait for a server in a process of its own until it says on stderr where it listens."""

from __future__ import annotations

import re
import subprocess


def listening_port(process: subprocess.Popen[str]) -> int:
    """The port on loopback that the process says it listens on. AssertionError with what it said if it ends before."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"listening on https?://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise AssertionError(f"it ended with {process.wait()}: {''.join(said)}")
