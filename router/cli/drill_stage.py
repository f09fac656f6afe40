"""Shared parts of the drill commands: the session they act on, waiting, and output."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing.money import Usd
from router.cli import console
from router.cli.clock import chosen_clock, wall_clock
from router.cli.console import ExitCode
from router.cli.site_options import acting_user, interrupt_on_sigterm, open_state_store

if TYPE_CHECKING:
    from providers.sandbox.machines import SandboxMachines
    from providers.sandbox.stock import StockFile
    from router.app.settings import AppSettings
    from router.controller.drills import DrillResult, DrillTarget, PreemptionDrill
    from router.state.store import StateStore

SCHEMA_VERSION = 1
_PAUSE_S = 0.1
_MARK_BYTES = 4


class DrillFormat(StrEnum):
    """Output format of the drills."""

    TEXT = "text"
    JSON = "json"


@dataclass
class DrillSession:
    """State of one drill.

    ``mark`` is the drill's unique name, ``places`` are the zones and regions of the sandbox, and ``done`` holds the
    results so far.
    """

    store: StateStore
    hand: SandboxMachines
    stock: StockFile
    places: frozenset[str]
    mark: str = field(default_factory=lambda: f"drill-{os.urandom(_MARK_BYTES).hex()}")
    done: list[DrillResult] = field(default_factory=list)
    interrupted: bool = False

    def record(self, drill: str, targets: Sequence[DrillTarget], **details: object) -> None:
        """Record the drill in the audit log, before it does anything."""
        machines = [f"{target.attempt} {target.rank}" for target in targets]
        now = chosen_clock()()
        self.store.audit.add(
            acting_user(), f"drill {drill}", "", Usd(0), now, id=self.mark, machines=machines, **details
        )

    def note(self, done: Iterable[DrillResult]) -> None:
        """Store and print the results for machines."""
        for one in done:
            console.note(_sentence(one))
            self.done.append(one)

    def announce(self, targets: Iterable[DrillTarget], text: str) -> None:
        """Print the notice that these machines were given."""
        for target in targets:
            console.note(f"{describe_target(target)} {text}")

    def wait(self, preemption: PreemptionDrill) -> None:
        """Wait until the preemption is complete. Ctrl-C leaves the remaining machines alive."""
        with self.interruptible():
            while not preemption.over:
                self.note(preemption.look())
                if not preemption.over:
                    time.sleep(min(_PAUSE_S, max(preemption.seconds, _PAUSE_S / 10)))
        if self.interrupted:
            self.note(preemption.let_go())

    def rest(self, seconds: float | None, goes_on: Callable[[], bool]) -> None:
        """Wait until ``seconds`` are over, ``goes_on`` returns False, or Ctrl-C.

        Without ``seconds`` Ctrl-C is the regular end and does not count as an interruption.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self.interruptible():
            while (deadline is None or time.monotonic() < deadline) and goes_on():
                time.sleep(_PAUSE_S)
        self.interrupted = self.interrupted and seconds is not None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """End the block on Ctrl-C or SIGTERM, and set ``interrupted``."""
        try:
            with interrupt_on_sigterm():
                yield
        except KeyboardInterrupt:
            self.interrupted = True
            console.note("\ninterrupted")

    def end(self, drill: str, output: DrillFormat, **more: object) -> ExitCode:
        """Print the results if JSON was asked for, and return the exit code."""
        from router.controller.drills import DrillOutcome

        document = {
            "schema_version": SCHEMA_VERSION,
            "drill": drill,
            "id": self.mark,
            "interrupted": self.interrupted,
            **more,
            "machines": [_row(one) for one in self.done],
        }
        if output is DrillFormat.JSON:
            console.out(json.dumps(document, indent=2))
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.PARTIAL if any(one.outcome is DrillOutcome.STUCK for one in self.done) else ExitCode.OK


@contextmanager
def open_drill_session(deploy: Path | None, clouds: Path | None) -> Iterator[DrillSession]:
    """Open the session of a drill. A missing state is not created."""
    from providers.sandbox.machines import SandboxMachines
    from providers.sandbox.stock import StockFile

    with open_state_store(deploy, clouds, makes=False) as (opened, store):
        yield DrillSession(store, SandboxMachines(store.id), StockFile(opened.sandbox), _places(opened))


def _places(opened: AppSettings) -> frozenset[str]:
    from providers.sandbox.default_script import make_default_script
    from providers.sandbox.script import Script

    document = opened.clouds.documents.get("sandbox")
    script = document if isinstance(document, Script) else make_default_script(wall_clock())
    return frozenset(name for region in script.regions for name in (region.name, *region.zones))


def describe_target(target: DrillTarget) -> str:
    """Return a machine as text: attempt, rank and place."""
    return f"{target.attempt} rank {target.rank} in {target.place}"


def _sentence(done: DrillResult) -> str:
    from router.controller.drills import DrillOutcome

    words = {
        DrillOutcome.KILLED: "was switched off",
        DrillOutcome.RELEASED: "was released before its time was over",
        DrillOutcome.LEFT: "runs on",
        DrillOutcome.STUCK: "cannot be switched off",
    }
    return f"{describe_target(done.target)} {words[done.outcome]}"


def _row(done: DrillResult) -> dict[str, Any]:
    one = done.target
    return {
        "job": one.job,
        "attempt": one.attempt,
        "rank": one.rank,
        "region": one.region,
        "zone": one.zone,
        "machine": one.machine.id,
        "outcome": done.outcome.value,
    }
