"""Limit how much a plan may search: by a count of nodes, and by the clock as a last resort.

A quiet machine does the count in half the time. Work is counted in columns of a program times the nodes opened, which
costs about the same time in small and in large programs. Counts end a search at the same place on an idle and on a busy
machine; where the clock ends one, the plan may differ from run to run, and says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from router.planning.document.plan import Cut
from router.planning.program.solver import LpRelaxation, Solution, Solver
from router.planning.rules.program import Program

_A_SECOND = 30_000  # columns x nodes; a quiet core does twice as many
_ROOT = 40  # nodes that take as long as the root of a search
_RELAXATION = 5  # nodes that take as long as a relaxation
Clock = Callable[[], float]


class Effort:
    """A solver with the time and work that it may still spend. Parts (:meth:`within`) spend from the whole."""

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
        self.spent = 0.0
        """Columns x nodes spent here so far."""
        self._parent: Effort | None = None
        self._cuts: dict[Cut, None] = {}

    def within(self, work: float, of_time: float = 1.0) -> Effort:
        """Return a part of the remaining effort: these shares of the count of nodes and of the time."""
        part = Effort(self.solver, timedelta(0), clock=self._clock)
        part._until = self._clock() + of_time * self._seconds_left()
        part._work = work * self._work
        part._parent = self
        part._cuts = self._cuts
        return part

    def from_now(self, limit: timedelta) -> Effort:
        """Return a part that has so much time from now on, whatever of the whole is left; its cuts are the whole's."""
        part = Effort(self.solver, limit, clock=self._clock)
        part._work = self._work
        part._parent = self
        part._cuts = self._cuts
        return part

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Return the phases cut short so far, each once, in order of phase and reason."""
        return tuple(sorted(self._cuts, key=lambda cut: (cut.phase, cut.by)))

    def late(self, phase: str) -> bool:
        """Return whether the time is over; if so, note the phase as cut short by time."""
        over = self._seconds_left() <= 0
        if over:
            self._cuts[Cut(phase, "time")] = None
        return over

    def is_spent(self, phase: str) -> bool:
        """Return whether neither time nor work is left for another search; if so, note the phase as cut short."""
        if self.late(phase):
            return True
        if self._work <= 0:
            self.stopped(phase)
        return self._work <= 0

    def stopped(self, phase: str) -> None:
        """Note that the phase reached the end of its own count of rounds."""
        self._cuts[Cut(phase, "work")] = None

    def failed(self, phase: str) -> None:
        """Note that the phase ended because a solver failed."""
        self._cuts[Cut(phase, "failure")] = None

    def affords(self, phase: str, program: Program) -> bool:
        """Return whether time and work suffice for one more search of this size.

        If not, the phase is noted as cut short.
        """
        if self.late(phase):
            return False
        enough = self._work > _ROOT * len(program.variables)
        if not enough:
            self.stopped(phase)
        return enough

    def solve(
        self,
        phase: str,
        program: Program,
        gap: float,
        start: Mapping[int, float] | None = None,
        most_nodes: int | None = None,
    ) -> Solution:
        """Solve as the solver does, at least the root while there is time; note an end before the optimum.

        An end by ``most_nodes`` is what the caller asked for, and is not noted.
        """
        if self.late(phase):
            return Solution("unknown", (), math.inf, -math.inf, True, 0.0)
        columns = max(1, len(program.variables))
        nodes = max(1, int(self._work / columns) - _ROOT)
        asked = most_nodes is not None and most_nodes <= nodes
        nodes = nodes if most_nodes is None else min(nodes, most_nodes)
        solution = self.solver.solve(program, gap, self._seconds_left(), start, nodes)
        self.spend((_ROOT + solution.nodes) * columns)
        if solution.failed:
            self.failed(phase)
        elif solution.hit_time_limit:
            self._cuts[Cut(phase, "time")] = None
        elif solution.outcome in ("feasible", "unknown") and not asked:
            self.stopped(phase)
        return solution

    def relax(self, phase: str, program: Program) -> LpRelaxation:
        """Solve the relaxation as the solver does; without time or work left return an unknown one and note that."""
        if self.late(phase):
            return LpRelaxation("unknown", -math.inf, {}, hit_time_limit=True)
        if self._work <= 0:
            self.stopped(phase)
            return LpRelaxation("unknown", -math.inf, {})
        relaxation = self.solver.relax(program, self._seconds_left())
        self.spend(_RELAXATION * len(program.variables))
        if relaxation.failed:
            self.failed(phase)
        elif relaxation.hit_time_limit:
            self._cuts[Cut(phase, "time")] = None
        return relaxation

    def spend(self, units: float) -> None:
        """Subtract columns x nodes from what is left here and in the whole."""
        self._work -= units
        self.spent += units
        if self._parent is not None:
            self._parent.spend(units)

    def _seconds_left(self) -> float:
        return self._until - self._clock()
