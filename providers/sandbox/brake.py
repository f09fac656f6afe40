"""Trainings of the sandbox that are held up: stopped and let go on by turns, while their agents go on as ever."""

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
from providers.sandbox.machines import Machine, Machines
from providers.sandbox.processes import Member

# How long they run at a time: some steps, but no time that anybody would notice who waits for it. What a training
# sleeps goes on while it is stopped, up to a step each time; half of that is made up for, since it may not sleep.
_STEPS, _SHORTEST_S, _LONGEST_S = 6, 0.1, 2.0
_GAINED = 0.5 / _STEPS
_LOOK_S = 2.0
_PROGRESS = ("control", "progress.json")
# Lets go on what it was last told of when whoever holds it up is gone, however that came.
_RELEASE = """\
last=
while read -r groups; do last=$groups; done
for group in $last; do kill -s CONT -- "-$group" 2>/dev/null; done
"""


class Brake:
    """A context in which every step of these machines' trainings takes about ``factor`` times as long. They go on at
    full speed when it ends, also when this process is killed. One that restarts meanwhile is held up, too."""

    def __init__(self, hand: Machines, machines: Sequence[Machine], factor: float) -> None:
        if factor <= 1:
            raise ValueError(f"{factor:g} times as long is not slower")
        self._hand, self._machines, self._factor = hand, tuple(machines), factor
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go, name="brake", daemon=True)
        self._watchman: subprocess.Popen[str] | None = None
        self._everybody: Sequence[Member] = ()
        self._mine: Sequence[Member] = ()

    def __enter__(self) -> Brake:
        words = ["sh", "-c", _RELEASE]
        self._watchman = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, text=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._signal(signal.SIGCONT)
        if self._watchman is not None:
            self._watchman.communicate()

    def _go(self) -> None:
        step: float | None = None
        while not self._ended.is_set():
            self._look()
            # As it was before it was held up.
            step = _step_seconds(self._machines) if step is None else step
            run = min(max(_STEPS * (step or 0.0), _SHORTEST_S), _LONGEST_S)
            period = run * self._factor * (1 + _GAINED)
            for _ in range(max(1, round(_LOOK_S / period))):
                self._signal(signal.SIGSTOP)
                self._ended.wait(period - run)
                self._signal(signal.SIGCONT)
                if self._ended.wait(run):
                    return

    def _look(self) -> None:
        self._mine, self._everybody = self._hand.trainings(self._machines)
        stream: IO[str] | None = self._watchman.stdin if self._watchman is not None else None
        if stream is not None:
            with suppress(OSError):
                stream.write(" ".join(str(group) for group in sorted({one.group for one in self._mine})) + "\n")
                stream.flush()

    def _signal(self, number: signal.Signals) -> None:
        processes.signal_groups(self._mine, self._everybody, number)


def _step_seconds(machines: Sequence[Machine]) -> float | None:
    """The longest that a training said of its step; None while none did. It may say anything."""
    found = []
    for machine in machines:
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(machine.folder.joinpath(*_PROGRESS).read_text(encoding="utf-8"))["step_seconds"]
            found.append(max(0.0, float(said)))
    return max(found, default=None)
