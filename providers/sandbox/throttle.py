"""Throttle of the sandbox's trainings: they are stopped and resumed by turns, while their agents run as usual."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO

from providers.sandbox import processes
from providers.sandbox.machines import SandboxMachine, SandboxMachines
from providers.sandbox.processes import NodeProcess

# How long trainings run at a time: some steps, but not long enough to be noticed. A sleeping training goes on with its
# sleep while it is stopped, up to a step each time; half of that is compensated, since it may not sleep.
_STEPS, _SHORTEST_S, _LONGEST_S = 6, 0.1, 2.0
_GAINED = 0.5 / _STEPS
_LOOK_S = 2.0
_PROGRESS = ("control", "progress.json")
# Resumes the groups it was last told of when the throttling process is gone, whatever the cause.
_RELEASE = """\
last=
while read -r groups; do last=$groups; done
for group in $last; do kill -s CONT -- "-$group" 2>/dev/null; done
"""


class TrainingThrottle:
    """Make every step of these machines' trainings take about ``factor`` times as long, within a context.

    The trainings run at full speed when it ends, also when this process is killed. One that restarts meanwhile is
    throttled, too.
    """

    def __init__(self, source: SandboxMachines, machines: Sequence[SandboxMachine], factor: float) -> None:
        if factor <= 1:
            raise ValueError(f"{factor:g} times as long is not slower")
        self._source, self._machines, self._factor = source, tuple(machines), factor
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="throttle", daemon=True)
        self._releaser: subprocess.Popen[str] | None = None
        self._processes: Sequence[NodeProcess] = ()
        self._trainings: Sequence[NodeProcess] = ()

    def __enter__(self) -> TrainingThrottle:
        words = ["sh", "-c", _RELEASE]
        self._releaser = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, text=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._signal(signal.SIGCONT)
        if self._releaser is not None:
            self._releaser.communicate()

    def _run(self) -> None:
        step: float | None = None
        while not self._ended.is_set():
            self._update_members()
            # The step time before throttling is the reference.
            step = _step_seconds(self._machines) if step is None else step
            run = min(max(_STEPS * (step or 0.0), _SHORTEST_S), _LONGEST_S)
            period = run * self._factor * (1 + _GAINED)
            for _ in range(max(1, round(_LOOK_S / period))):
                self._signal(signal.SIGSTOP)
                self._ended.wait(period - run)
                self._signal(signal.SIGCONT)
                if self._ended.wait(run):
                    return

    def _update_members(self) -> None:
        self._trainings, self._processes = self._source.trainings(self._machines)
        stream: IO[str] | None = self._releaser.stdin if self._releaser is not None else None
        if stream is not None:
            with suppress(OSError):
                stream.write(" ".join(str(group) for group in sorted({one.group for one in self._trainings})) + "\n")
                stream.flush()

    def _signal(self, number: signal.Signals) -> None:
        processes.signal_groups(self._trainings, self._processes, number)


def _step_seconds(machines: Sequence[SandboxMachine]) -> float | None:
    """Return the longest step that a training reported; None while none did. A report may hold anything."""
    steps = []
    for machine in machines:
        with suppress(OSError, ValueError, KeyError, TypeError):
            step = json.loads(machine.folder.joinpath(*_PROGRESS).read_text(encoding="utf-8"))["step_seconds"]
            steps.append(max(0.0, float(step)))
    return max(steps, default=None)
