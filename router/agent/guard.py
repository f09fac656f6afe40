"""A process that outlives the agent briefly: when the agent is gone, it kills the processes that the agent started.

It reads lines of JSON from the agent. The end of its input is the end of the agent, because nobody else holds the other
end of the pipe. Unlike Linux's PR_SET_PDEATHSIG, which reaches one process, this reaches the whole group and its
containers, and works on macOS.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping


class ProcessGuard:
    """The agent's handle of its guard process. Never raises: the agent continues without a guard."""

    def __init__(self, agent: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", agent, "--guard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            return

    def watch(self, group: int | None, clean_up: list[str]) -> None:
        """Name the process group and the command that the guard runs when the agent is gone; None: nothing."""
        try:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(json.dumps([group, clean_up]).encode() + b"\n")
                self._process.stdin.flush()
        except OSError:
            return

    def close(self) -> None:
        """Let the guard end; it kills what it still watches."""
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
                self._process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()


def main() -> int:
    """Run the guard process: end what the last line named, once the agent is gone."""
    group: int | None = None
    clean_up: list[str] = []
    for line in sys.stdin.buffer:
        group, clean_up = json.loads(line)
    if group is not None:
        kill_group(group)
        run_quietly(clean_up)
    return 0


def kill_group(group: int) -> None:
    """Send SIGKILL to every remaining process of the group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises PermissionError for a group of zombies.
        return


def run_quietly(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a clean-up command for at most a minute, and ignore its result. ``environment`` None: this process's own."""
    if not command:
        return
    try:
        subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
