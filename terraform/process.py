"""Child processes with a time limit: lines are passed on as they come, and stopping precedes killing.

Only ``generate_cmd_string`` of python-terraform is used: its own ways to run a command have no time limit, no streaming
and give options that Terraform dropped years ago (docs/design/provisioning.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Final

from python_terraform import IsFlagged, Terraform

_TICK_S: Final = 0.1
_LATE_OUTPUT_S: Final = 2.0  # A grandchild may hold the output open after the child's end.
_STDERR_LINES: Final = 200


class EndReason(StrEnum):
    """The reason why a process ended."""

    ITSELF = "by itself"
    TIME_LIMIT = "time limit"
    ASKED = "asked to stop"


@dataclass(frozen=True, slots=True)
class StopTimeouts:
    """Seconds to wait between the steps of stopping a process.

    The steps are asking (SIGINT, once: a second one makes Terraform drop its state), insisting (SIGTERM) and killing
    the whole group.
    """

    interrupt_s: float = 120.0
    terminate_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The result of a process.

    ``code`` is negative for a signal; ``stderr`` holds its last lines; ``killed`` when nothing milder helped.
    """

    code: int
    ended: EndReason
    killed: bool
    stderr: str = field(repr=False)


def run_process(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    limit_s: float,
    patience: StopTimeouts,
    on_line: Callable[[str], None],
    stop: threading.Event | None = None,
) -> ProcessResult:
    """Run ``words`` in a process session of their own (Ctrl-C reaches only the caller).

    ``on_line`` is called in the caller's thread. When the limit is reached, ``stop`` is set, ``on_line`` raises or
    Ctrl-C is pressed, the child is asked to stop and its output is read until it has. The exception is raised again
    then; a second Ctrl-C moves on to the next step at once. OSError when the child cannot be started.
    """
    child = subprocess.Popen(
        words,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return _Watch(child, time.monotonic() + limit_s, patience, on_line, stop).finish()


class _Watch:
    """Watch one child until its end."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        deadline: float,
        patience: StopTimeouts,
        on_line: Callable[[str], None],
        stop: threading.Event | None,
    ) -> None:
        self._child = child
        self._deadline = deadline
        self._on_line = on_line
        self._stop = stop
        self._steps = [(signal.SIGINT, patience.interrupt_s), (signal.SIGTERM, patience.terminate_s)]
        self._ended = EndReason.ITSELF
        self._ending = False
        self._killed = False
        self._raised: BaseException | None = None
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._stderr: deque[bytes] = deque(maxlen=_STDERR_LINES)

    def finish(self) -> ProcessResult:
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        readers = [
            threading.Thread(target=_drain, args=(stream, take), daemon=True)
            for stream, take in ((self._child.stdout, self._lines.put), (self._child.stderr, self._stderr.append))
        ]
        for reader in readers:
            reader.start()
        gone_at: float | None = None
        more = True
        while more or self._child.poll() is None:
            try:
                more = self._step(more)
            except KeyboardInterrupt as error:
                self._raised, self._ended = error, EndReason.ASKED
                self._escalate()
            if self._child.poll() is not None and more:
                gone_at = gone_at or time.monotonic()
                more = time.monotonic() - gone_at < _LATE_OUTPUT_S
        if self._ending:
            self._kill_group()  # Processes that the child started and did not end; nodes are in other groups.
        if self._raised is not None:
            raise self._raised
        # Standard error may still be read when standard output has ended; a surviving grandchild may hold it open.
        readers[-1].join(_LATE_OUTPUT_S)
        errors = b"".join(line for line in list(self._stderr) if line).decode(errors="replace")
        return ProcessResult(self._child.returncode, self._ended, self._killed, errors)

    def _step(self, more: bool) -> bool:
        if more:
            with suppress(Empty):
                line = self._lines.get(timeout=_TICK_S)
                if line is None:
                    return False
                self._pass_on(line)
        else:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_TICK_S)
        self._check()
        return more

    def _pass_on(self, line: bytes) -> None:
        if self._raised is not None:
            return
        try:
            self._on_line(line.decode(errors="replace").rstrip("\r\n"))
        except Exception as error:
            self._raised, self._ended = error, EndReason.ASKED
            self._escalate()

    def _check(self) -> None:
        if self._child.poll() is not None:
            return
        if not self._ending and self._stop is not None and self._stop.is_set():
            self._ended = EndReason.ASKED
            self._escalate()
        elif time.monotonic() >= self._deadline:
            if not self._ending:
                self._ended = EndReason.TIME_LIMIT
            self._escalate()

    def _escalate(self) -> None:
        self._ending = True
        if self._child.poll() is not None:
            return
        if not self._steps:
            self._killed = True
            self._deadline = float("inf")
            self._kill_group()
            return
        step, wait_s = self._steps.pop(0)
        self._deadline = time.monotonic() + wait_s
        # The signal goes to the engine alone, which ends its plugins and provisioners itself once they have finished.
        self._child.send_signal(step)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)


def _drain(stream: IO[bytes], take: Callable[[bytes | None], None]) -> None:
    with stream:
        for line in stream:
            take(line)
    take(None)


def command_line(engine: Path, command: str, *arguments: str, **options: bool | str | int) -> tuple[str, ...]:
    """Return the words of ``engine command``, e.g. ``command_line(path, "apply", "p.tfplan", input=False, json=True)``.

    True is a bare flag (``-json``), False is written out (``-input=false``); ``_`` in a name becomes ``-``.
    """
    # The folder cannot exist, because the object reads the state of a folder it is given and fails on an empty one.
    # Each call makes its own object, because it is not thread-safe.
    builder = Terraform(working_dir=os.devnull, terraform_bin_path=str(engine))
    flags = {name: IsFlagged if value is True else value for name, value in options.items()}
    return tuple(str(word) for word in builder.generate_cmd_string(command, *arguments, **flags))
