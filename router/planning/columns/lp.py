"""Keep a linear program open in HiGHS, so that columns and rows are added to it and it is solved from where it stood.

PuLP writes a program anew for each solve, which at a thousand jobs takes longer than the solve. Whole-number programs
go through :mod:`router.planning.program.solver`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from router.planning.program.solver import SolverFailedError, solver_failures

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ANSWERS = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
_FEASIBLE = 2  # as HiGHS numbers it


@dataclass(frozen=True, slots=True)
class LpSolution:
    """A basic solution: values by column, duals by row (what one unit more of its right side costs)."""

    objective: float
    values: Floats
    duals: Floats
    iterations: int


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Indices and their coefficients."""

    indices: Ints
    values: Floats


class OpenLp:
    """A minimisation whose columns are at least zero. One thread and a fixed seed: the same calls, the same answer."""

    def __init__(self) -> None:
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy has few types
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 1),
            ("solver", "simplex"),
            ("primal_feasibility_tolerance", 1e-8),
            ("dual_feasibility_tolerance", 1e-8),
        ):
            self._highs.setOptionValue(option, value)
        self.rows = 0
        self.columns = 0

    def add_rows(self, rows: Sequence[SparseVector], low: Floats, high: Floats) -> None:
        """Add rows over the columns that there are."""
        with solver_failures():
            starts, indices, values = _compressed(rows)
            _check(self._highs.addRows(len(rows), low, high, len(indices), starts, indices, values))
        self.rows += len(rows)

    def add_columns(self, columns: Sequence[SparseVector], costs: Floats, high: Floats) -> None:
        """Add columns over the rows that there are."""
        with solver_failures():
            starts, indices, values = _compressed(columns)
            low = np.zeros(len(columns))
            _check(self._highs.addCols(len(columns), costs, low, high, len(indices), starts, indices, values))
        self.columns += len(columns)

    def set_costs(self, columns: Ints, costs: Floats) -> None:
        """Replace the costs of these columns."""
        self._highs.changeColsCost(len(columns), columns.astype(np.int32), costs)

    def set_bounds(self, columns: Ints, low: Floats, high: Floats) -> None:
        """Replace the bounds of these columns."""
        self._highs.changeColsBounds(len(columns), columns.astype(np.int32), low, high)

    def set_row(self, row: int, low: float, high: float) -> None:
        """Replace the bounds of a row."""
        self._highs.changeRowBounds(row, low, high)

    def forget_basis(self) -> None:
        """Let the next solution start anew: from a basis that is far from it the solver may need minutes."""
        self._highs.clearSolver()

    def solve(self) -> LpSolution | None:
        """Return the optimum; None where there is none.

        Where the solver knows that it is near the optimum only, the answer keeps all rows, and its duals are prices as
        good as any. SolverFailedError where it has no answer.
        """
        with solver_failures():
            self._highs.run()
            if self._highs.getModelStatus() not in _ANSWERS:
                # From the last basis the solver can get stuck at duals that are off by more than its tolerance.
                self._highs.clearSolver()
                self._highs.run()
            if self._highs.getModelStatus() not in _ANSWERS:
                # Simplex itself can fail where a job left out costs a million times what others do.
                self._highs.clearSolver()
                self._highs.setOptionValue("solver", "ipm")
                self._highs.run()
                self._highs.setOptionValue("solver", "simplex")
            status, info = self._highs.getModelStatus(), self._highs.getInfo()
            if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
                return None
            near = status == highspy.HighsModelStatus.kUnknown and info.primal_solution_status == _FEASIBLE
            if status != highspy.HighsModelStatus.kOptimal and not near:
                raise SolverFailedError(f"the open program ended with {status}")
            solution = self._highs.getSolution()
            return LpSolution(
                objective=float(info.objective_function_value),
                values=np.array(solution.col_value),
                duals=np.array(solution.row_dual),
                iterations=max(0, int(info.simplex_iteration_count)),
            )


def _check(status: Any) -> None:
    """Raise SolverFailedError where HiGHS refused a change."""
    if status == highspy.HighsStatus.kError:
        raise SolverFailedError("the open program refused rows or columns")


def _compressed(vectors: Sequence[SparseVector]) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """Return starts, indices and values of the vectors one after the other."""
    sizes = [len(vector.indices) for vector in vectors]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if sizes else np.zeros(0)
    indices = np.concatenate([vector.indices for vector in vectors]) if vectors else np.zeros(0)
    values = np.concatenate([vector.values for vector in vectors]) if vectors else np.zeros(0)
    return starts.astype(np.int32), indices.astype(np.int32), values.astype(np.float64)
