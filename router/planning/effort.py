"""How much a plan may search: a count of nodes that a quiet machine does in half the time, the clock as a last resort.

Work is counted in columns of a program times the nodes opened, which costs about the same time in small and in large
programs. Counts end a search at the same place on an idle and on a busy machine; where the clock ends one, the plan may
differ from run to run, and says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from router.planning.plan import Cut
from router.planning.program import Program
from router.planning.solver import Relaxed, Solution, Solver

_A_SECOND = 30_000  # columns x nodes; a quiet core does twice as many
_ROOT = 40  # the root of a search takes as long as so many of its nodes
_RELAXATION = 5  # a relaxation as so many
Clock = Callable[[], float]


class Effort:
    """A solver with what it may still spend. Parts of an effort (:meth:`within`) spend from the whole."""

    def __init__(
        self,
        solver: Solver,
        limit: timedelta,
        *,
        clock: Clock = time.monotonic,
        began: float | None = None,
    ) -> None:
        self.solver = solver
        self._clock = clock
        self._until = (clock() if began is None else began) + limit.total_seconds()
        self._work = limit.total_seconds() * _A_SECOND
        self._whole: Effort | None = None
        self._cuts: dict[Cut, None] = {}

    def within(self, work: float, of_time: float = 1.0) -> Effort:
        """A part of what is left: these shares of the count of nodes and of the time."""
        part = Effort(self.solver, timedelta(0), clock=self._clock)
        part._until = self._clock() + of_time * self._left()
        part._work = work * self._work
        part._whole = self
        part._cuts = self._cuts
        return part

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was cut short so far, each once, in order of phase and reason."""
        return tuple(sorted(self._cuts, key=lambda cut: (cut.phase, cut.by)))

    def late(self, phase: str) -> bool:
        """Whether the time is over; then the phase is noted as cut short by it."""
        over = self._left() <= 0
        if over:
            self._cuts[Cut(phase, "time")] = None
        return over

    def stopped(self, phase: str) -> None:
        """Note that the phase came to the end of its own count of rounds."""
        self._cuts[Cut(phase, "work")] = None

    def affords(self, phase: str, program: Program) -> bool:
        """Whether time and work are left for one more search of this size; if not, the phase is noted as cut short."""
        if self.late(phase):
            return False
        enough = self._work > _ROOT * len(program.variables)
        if not enough:
            self.stopped(phase)
        return enough

    def solve(self, phase: str, program: Program, gap: float, start: Mapping[int, float] | None = None) -> Solution:
        """As the solver does, at least the root where there is any time; an end before the optimum is noted."""
        if self.late(phase):
            return Solution("unknown", (), math.inf, -math.inf, True, 0.0)
        columns = max(1, len(program.variables))
        nodes = max(1, int(self._work / columns) - _ROOT)
        found = self.solver.solve(program, gap, self._left(), start, nodes)
        self.spend((_ROOT + found.nodes) * columns)
        if found.hit_time_limit:
            self._cuts[Cut(phase, "time")] = None
        elif found.outcome in ("feasible", "unknown"):
            self.stopped(phase)
        return found

    def relax(self, phase: str, program: Program) -> Relaxed:
        """As the solver does; without time or work left there is none, and that is noted."""
        if self.late(phase):
            return Relaxed("unknown", -math.inf, {}, hit_time_limit=True)
        if self._work <= 0:
            self.stopped(phase)
            return Relaxed("unknown", -math.inf, {})
        found = self.solver.relax(program, self._left())
        self.spend(_RELAXATION * len(program.variables))
        if found.hit_time_limit:
            self._cuts[Cut(phase, "time")] = None
        return found

    def spend(self, units: float) -> None:
        """Take columns x nodes from what is left here and in the whole."""
        self._work -= units
        if self._whole is not None:
            self._whole.spend(units)

    def _left(self) -> float:
        return self._until - self._clock()
