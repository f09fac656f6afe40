"""One process and all it starts: started in a session of its own, stopped gently, then not, its output taken along."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from router.agent.guard import Guard, kill_group, run_quietly


@dataclass(frozen=True)
class Event:
    """What the agent's main thread is told, through a ``SimpleQueue``, whose put may be called in a signal handler.

    ``kind``: exit (of the process with that id), signal (to the agent), order (of the coordinator), notice (a
    :class:`~router.agent.notice.Notice`), checkpoint (the coordinator's answer that orders one).
    """

    kind: str
    detail: Any = None


@dataclass(frozen=True)
class Exit:
    """How a process went. ``signal`` is also known where a shell or docker says it by a code over 128."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, returncode: int) -> Exit:
        """From what ``Popen`` says."""
        if returncode < 0:
            return cls(None, -returncode)
        return cls(returncode, returncode - 128 if 128 < returncode <= 128 + 64 else None)

    @property
    def fine(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0


class Supervised:
    """A running process. Made and used by one thread; ``OSError`` when it cannot be started."""

    def __init__(
        self,
        command: list[str],
        *,
        environment: Mapping[str, str],
        workdir: str,
        clean_up: list[str],
        guard: Guard,
        output: Callable[[bytes], None],
        events: queue.SimpleQueue[Event],
    ) -> None:
        self._guard, self._events = guard, events
        self._clean_up, self._environment = clean_up, environment
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=workdir,
            start_new_session=True,
        )
        self.pid = self._process.pid
        guard.watch(self.pid, clean_up)
        self._pump = threading.Thread(target=self._take_output, args=(output,), daemon=True)
        self._pump.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _take_output(self, output: Callable[[bytes], None]) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while data := os.read(descriptor, 65536):
            output(data)

    def _wait(self) -> None:
        self._process.wait()
        self._events.put(Event("exit", self.pid))

    def terminate(self) -> None:
        """SIGTERM to every process of the group: a shell would not pass it on."""
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            return

    def wait_gone(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Waits until the whole group is gone, at most so long: what a dead shell leaves behind may still be writing
        its checkpoint. Calls ``meanwhile`` many times."""
        limit = time.monotonic() + seconds
        while self._left() and time.monotonic() < limit:
            time.sleep(0.05)
            meanwhile()

    def _left(self) -> bool:
        if self._process.poll() is None:
            return True
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def finish(self) -> Exit:
        """Kills what is left of the group, takes the last output, and says how the process went."""
        kill_group(self.pid)
        run_quietly(self._clean_up, self._environment)
        returncode = self._process.wait()
        self._guard.watch(None, [])
        # Longer only if a process left the group and kept the pipe; its output is not waited for.
        self._pump.join(5)
        return Exit.of(returncode)
