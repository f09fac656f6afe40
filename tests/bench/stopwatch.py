"""Where the time of a plan goes: phases as the planner counts them, and inside them what HiGHS itself takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import highspy

from router.planning.document.plan import Plan
from router.planning.planner import PlanRequest, Timings, make_plan


@dataclass(slots=True)
class Engine:
    """Seconds inside HiGHS's own ``run``, and how often it ran: what no code of ours can shorten."""

    seconds: float = 0.0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Timed:
    """A plan and its wall seconds: whole, by phase, inside the engine."""

    plan: Plan
    wall: float
    phases: Timings
    engine: Engine

    @property
    def outside_engine(self) -> float:
        """Share of the wall time that is not HiGHS."""
        return 1 - self.engine.seconds / self.wall


@contextmanager
def _watching() -> Iterator[Engine]:
    """Counts what runs of HiGHS take. Wraps the engine's own class: the planner is timed as it is."""
    engine, plain = Engine(), highspy.Highs.run

    def timed(self: highspy.Highs) -> object:
        began = time.perf_counter()
        try:
            return plain(self)
        finally:
            engine.seconds += time.perf_counter() - began
            engine.runs += 1

    with patch.object(highspy.Highs, "run", timed):
        yield engine


def timed_plan(request: PlanRequest) -> Timed:
    """Plans once, measured."""
    phases = Timings()
    with _watching() as engine:
        began = time.perf_counter()
        plan = make_plan(request, timings=phases)
        wall = time.perf_counter() - began
    return Timed(plan, wall, phases, engine)
