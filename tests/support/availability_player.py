"""Play recorded spot availability on the sandbox: a zone without machines in the trace has none, and loses its own."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from providers.sandbox.machines import SandboxMachines
from providers.sandbox.stock import StockFile
from router.controller.drills import DrillResult, PreemptionDrill, close_zones, open_zones
from router.state.store import StateStore
from tests.support.repository import ROOT

TRACES = ROOT.parent / "shared" / "data" / "spot-traces"
_MARK_BYTES = 4
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Trace:
    """How many machines could be had, tick by tick; a tick was ``seconds`` long."""

    seconds: float
    machines: Sequence[int]

    def up(self, tick: int, needs: int) -> bool:
        """Whether there were as many; the trace begins again at its end."""
        return self.machines[tick % len(self.machines)] >= needs


def read_trace(path: Path) -> Trace:
    """A file of ``shared/data/spot-traces``."""
    content = json.loads(path.read_text())
    return Trace(float(content["metadata"]["gap_seconds"]), tuple(int(number) for number in content["data"]))


@dataclass
class Availability:
    """``traces`` by zone. A zone is up while its trace has ``needs`` machines. Before it goes down its machines have
    ``notice_s`` real seconds; nobody is told where it is 0. Nothing here sleeps or looks at a clock but ``ticks``."""

    store: StateStore
    hand: SandboxMachines
    stock: StockFile
    traces: Mapping[str, Trace]
    ticks: Callable[[], float]
    needs: int = 1
    notice_s: float = 0.0
    takings: dict[str, tuple[str, PreemptionDrill]] = field(default_factory=dict)
    done: list[tuple[str, DrillResult]] = field(default_factory=list)
    outages: int = 0

    def turn(self, tick: int) -> None:
        """Begin a tick. A zone whose machines are still being preempted stays down until they are gone."""
        for zone, trace in self.traces.items():
            up, down = trace.up(tick, self.needs), zone in self.takings
            if not up and not down:
                mark = f"weather-{os.urandom(_MARK_BYTES).hex()}"
                taking = close_zones(
                    self.store, self.hand, self.stock, [zone], mark, seconds=self.notice_s, until=None, ticks=self.ticks
                )
                self.takings[zone] = (mark, taking)
                self.outages += 1
            elif up and down and self.takings[zone][1].over:
                mark, _ = self.takings.pop(zone)
                open_zones(self.stock, [zone], mark)

    def look(self) -> None:
        for zone, (_, taking) in self.takings.items():
            self.done += [(zone, one) for one in taking.look()]

    def clear_up(self) -> None:
        """All zones are up again, and nobody else is taken."""
        for zone, (mark, taking) in self.takings.items():
            taking.let_go()
            open_zones(self.stock, [zone], mark)
        self.takings = {}


@contextmanager
def play_availability(availability: Availability, tick_s: float, first: int = 0) -> Iterator[None]:
    """Plays it from the ``first`` tick on, a tick in ``tick_s`` real seconds, until the block ends."""
    ended, trouble = threading.Event(), list[BaseException]()

    def play() -> None:
        began = availability.ticks()
        tick = -1
        try:
            while not ended.wait(_PAUSE_S):
                now = int((availability.ticks() - began) / tick_s)
                if now > tick:
                    tick = now
                    availability.turn(first + tick)
                availability.look()
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=play, name="weather")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        availability.clear_up()
        assert not trouble, trouble
