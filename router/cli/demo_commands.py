"""Commands of the demo: each a process of its own, shown as a user would type it, its output indented below."""

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
# What Ctrl-C began, such as releasing machines, may take so long.
_PATIENCE_S = 120.0
# A command beside the first has seen its end by then.
_BESIDE_S = 5.0
_POLL_S = 0.1


class FailedError(Exception):
    """A command did not do what the demo needs; the message says which and how."""


@dataclass(frozen=True)
class Beside:
    """A command as in another terminal: begun once ``when`` holds, after what the demo ``says`` about it; ended soon
    after the first one."""

    line: str
    when: Callable[[], bool]
    says: str = ""


@dataclass
class Commands:
    """``folder`` is where they run, ``environment`` what they see. Once ``interrupted`` is set, what runs gets SIGINT,
    may finish what it does then, and KeyboardInterrupt is raised."""

    folder: Path
    environment: Mapping[str, str]
    interrupted: threading.Event = field(default_factory=threading.Event)
    _lines: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While the block runs, Ctrl-C and SIGTERM set ``interrupted`` and do nothing else: no process is forgotten
        because they came while it was started."""
        before = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupted.set()

    def show(self, line: str, *besides: Beside) -> None:
        """Runs it, with its output as it comes. FailedError unless it ends with 0, and those beside it that had their
        moment do unless they were ended."""
        first = self._start(line)
        waiting, begun = list(besides), list[tuple[Beside, subprocess.Popen[str]]]()
        while first.poll() is None and not self.interrupted.is_set():
            self._print_for(_POLL_S)
            if waiting and waiting[0].when():
                beside = waiting.pop(0)
                if beside.says:
                    console.out(f"\n{beside.says}")
                begun.append((beside, self._start(beside.line)))
        if self.interrupted.is_set():
            first.send_signal(signal.SIGINT)
            self._drain(first, _PATIENCE_S)
        for _, other in begun:
            self._drain(other, _BESIDE_S)
        self._drain(first, _BESIDE_S)
        self._stop_if_interrupted()
        for said, ended in [(line, first), *((beside.line, other) for beside, other in begun)]:
            if ended.returncode not in (0, -signal.SIGTERM):
                raise FailedError(f"`{said}` ended with exit code {ended.returncode}: what it said is above")

    def ask(self, line: str) -> str:
        """What it writes to standard output, not shown. FailedError unless it ends with 0, after all that it said."""
        done = subprocess.run(
            _words(line),
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
            raise FailedError(f"`{line}` ended with exit code {done.returncode}: what it said is above")
        return done.stdout

    def _stop_if_interrupted(self) -> None:
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def _start(self, line: str) -> subprocess.Popen[str]:
        console.out(f"\n{console.styled(f'$ {line}', 'bold')}")
        sys.stdout.flush()
        # A session of its own: Ctrl-C comes to the demo alone.
        process = subprocess.Popen(
            _words(line),
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
        threading.Thread(target=self._take, args=(process.stdout,), daemon=True).start()
        return process

    def _take(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line)

    def _print_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                console.out(f"{_INDENT}{self._lines.get(timeout=left)}".rstrip())
            except queue.Empty:
                break
            sys.stdout.flush()

    def _drain(self, process: subprocess.Popen[str], seconds: float) -> None:
        """Prints on until it has ended, and ends it after so long."""
        end = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() > end:
                process.terminate()
                end = time.monotonic() + seconds
            self._print_for(_POLL_S)
        self._print_for(_POLL_S)


def _words(line: str) -> list[str]:
    return [sys.executable, "-P", "-c", _PROGRAM, *shlex.split(line)[1:]]
