"""Commands of the demo. Each is a process of its own, shown as a user would type it, with its output indented."""

from __future__ import annotations

import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from router.cli import console

_INDENT = "  "
_PROGRAM = "from router.cli.main import main; main()"
# Time limit for the work that follows Ctrl-C, such as releasing machines.
_SHUTDOWN_S = 120.0
# Time limit for a side command after the end of the first command.
_BESIDE_S = 5.0
_POLL_S = 0.1


class DemoCommandError(Exception):
    """A command did not do what the demo needs; the message names the command and the failure."""


@dataclass(frozen=True)
class SideCommand:
    """A side command, run as in another terminal.

    It starts once ``when`` holds, after the demo has printed ``says``, and is ended soon after the main command.
    """

    line: str
    when: Callable[[], bool]
    says: str = ""


@dataclass
class DemoCommands:
    """Runs commands in ``folder`` with ``environment``.

    Once ``interrupted`` is set, running commands get SIGINT and time to finish, then KeyboardInterrupt is raised.
    """

    folder: Path
    environment: Mapping[str, str]
    interrupted: threading.Event = field(default_factory=threading.Event)
    _lines: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Set ``interrupted`` on Ctrl-C and SIGTERM while the block runs, and do nothing else.

        No process is lost because a signal came while it was being started.
        """
        before = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupted.set()

    def show(self, line: str, *side_commands: SideCommand) -> None:
        """Run a command and print its output as it comes.

        Raises DemoCommandError unless the command and all side commands that started end with exit code 0. Side
        commands that were ended by SIGTERM do not count.
        """
        first = self._start(line)
        pending, started = list(side_commands), list[tuple[SideCommand, subprocess.Popen[str]]]()
        while True:
            # Looked at before the command may have ended: one that takes no time has its side commands too.
            if pending and pending[0].when():
                side_command = pending.pop(0)
                if side_command.says:
                    console.out(f"\n{side_command.says}")
                started.append((side_command, self._start(side_command.line)))
            if first.poll() is not None or self.interrupted.is_set():
                break
            self._print_for(_POLL_S)
        if self.interrupted.is_set():
            first.send_signal(signal.SIGINT)
            self._drain(first, _SHUTDOWN_S)
        for _, other in started:
            self._drain(other, _BESIDE_S)
        self._drain(first, _BESIDE_S)
        self._stop_if_interrupted()
        for command, process in [(line, first), *((side_command.line, other) for side_command, other in started)]:
            if process.returncode not in (0, -signal.SIGTERM):
                raise DemoCommandError(f"`{command}` ended with exit code {process.returncode}: see its output above")

    def ask(self, line: str) -> str:
        """Run a command and return its standard output, which is not shown.

        If the exit code is not 0, all output is printed and DemoCommandError is raised.
        """
        done = subprocess.run(
            _argv(line),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self._stop_if_interrupted()
        if done.returncode:
            console.note(done.stdout + done.stderr)
            raise DemoCommandError(f"`{line}` ended with exit code {done.returncode}: see its output above")
        return done.stdout

    def _stop_if_interrupted(self) -> None:
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def _start(self, line: str) -> subprocess.Popen[str]:
        console.out(f"\n{console.style_text(f'$ {line}', 'bold')}")
        sys.stdout.flush()
        # The command gets a session of its own, so that Ctrl-C reaches only the demo.
        process = subprocess.Popen(
            _argv(line),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._collect, args=(process.stdout,), daemon=True).start()
        return process

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line)

    def _print_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            try:
                console.out(f"{_INDENT}{self._lines.get(timeout=remaining)}".rstrip())
            except queue.Empty:
                break
            sys.stdout.flush()

    def _drain(self, process: subprocess.Popen[str], seconds: float) -> None:
        """Print output until the process has ended; terminate it after ``seconds``."""
        end = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() > end:
                process.terminate()
                end = time.monotonic() + seconds
            self._print_for(_POLL_S)
        self._print_for(_POLL_S)


def _argv(line: str) -> list[str]:
    return [sys.executable, "-P", "-c", _PROGRAM, *shlex.split(line)[1:]]
