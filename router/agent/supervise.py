"""One supervised process with all that it starts: run in a session of its own, stopped gently, then killed."""

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

from router.agent.guard import ProcessGuard, kill_group, run_quietly


@dataclass(frozen=True)
class AgentEvent:
    """An event for the agent's main thread.

    It is sent through a ``SimpleQueue``, whose put may be called in a signal handler.

    ``kind``: exit (of the process with that id), signal (to the agent), order (of the coordinator), notice (a
    :class:`~router.agent.imds.MachineNotice`), checkpoint (the coordinator's answer that orders one).
    """

    kind: str
    detail: Any = None


@dataclass(frozen=True)
class ProcessExit:
    """The end of a process. ``signal`` is also set where a shell or docker reports one by a code over 128."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, returncode: int) -> ProcessExit:
        """Return the exit for a return code of ``Popen``."""
        if returncode < 0:
            return cls(None, -returncode)
        return cls(returncode, returncode - 128 if 128 < returncode <= 128 + 64 else None)

    @property
    def fine(self) -> bool:
        return self.code == 0


class SupervisedProcess:
    """A running process, created and used by one thread. ``OSError`` when it cannot be started."""

    def __init__(
        self,
        command: list[str],
        *,
        environment: Mapping[str, str],
        workdir: str,
        clean_up: list[str],
        guard: ProcessGuard,
        output: Callable[[bytes], None],
        events: queue.SimpleQueue[AgentEvent],
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
        self._output_thread = threading.Thread(target=self._read_output, args=(output,), daemon=True)
        self._output_thread.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _read_output(self, output: Callable[[bytes], None]) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while data := os.read(descriptor, 65536):
            output(data)

    def _wait(self) -> None:
        self._process.wait()
        self._events.put(AgentEvent("exit", self.pid))

    def terminate(self) -> None:
        """Send SIGTERM to every process of the group, because a shell would not pass it on."""
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            return

    def wait_gone(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Wait until the whole group is gone, at most ``seconds``; call ``meanwhile`` repeatedly.

        Processes that a dead shell leaves behind may still be writing a checkpoint.
        """
        limit = time.monotonic() + seconds
        while self._is_alive() and time.monotonic() < limit:
            time.sleep(0.05)
            meanwhile()

    def _is_alive(self) -> bool:
        if self._process.poll() is None:
            return True
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def finish(self) -> ProcessExit:
        """Kill the rest of the group, read the last output, and return how the process ended."""
        kill_group(self.pid)
        run_quietly(self._clean_up, self._environment)
        returncode = self._process.wait()
        self._guard.watch(None, [])
        # This takes longer only if a process left the group and kept the pipe; its output is not waited for.
        self._output_thread.join(5)
        return ProcessExit.of(returncode)
