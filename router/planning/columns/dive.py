"""Round the relaxation to a whole plan: fix the jobs that would lose most, solve again, until every job is whole.

Columns that the relaxation holds whole stay free to move until they are fixed. A job that would lose most is one whose
cheapest column that touches nothing scarce costs far more than the value that the relaxation gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from router.planning.columns.column import Column, merged_columns
from router.planning.columns.confidence import SureColumns
from router.planning.columns.master import Master, MasterSolution
from router.planning.columns.table import Bools, Floats
from router.planning.columns.whole import PlanTotals, WholePlan
from router.planning.program.effort import Effort
from router.planning.program.solver import SolverFailedError

_PHASE = "rounding"
_WHOLE, _SOME = 1 - 1e-6, 1e-6


def dive(
    master: Master,
    totals: PlanTotals,
    sure: SureColumns,
    solution: MasterSolution,
    effort: Effort,
    share: float,
    first: Sequence[int] = (),
) -> WholePlan:
    """Return the plan reached by fixing the jobs of ``first``, then ``share`` of the fractional jobs at a time.

    The plan holds sure columns. The master keeps the columns that were made on the way; all columns are free again at
    the end.
    """
    rounding = _Rounding(master, totals, sure, solution)
    if first or rounding.is_unsure():
        master.forget_basis()
        rounding.fix(first)
    while not effort.late(_PHASE) and rounding.fix_more(share):
        pass
    return rounding.finish()


class _Rounding:
    def __init__(self, master: Master, totals: PlanTotals, sure: SureColumns, solution: MasterSolution) -> None:
        self.master, self.totals, self.sure, self.table = master, totals, sure, master.table
        self.solution = solution
        self.chosen: list[int | None] = [None] * len(self.table.jobs)
        self.fixed: Bools = np.zeros(len(self.table.jobs), dtype=np.bool_)
        self.room: Floats = totals.capacity.copy()
        self.homes: dict[int, int] = {}
        self.money: Floats = np.append(self.table.team_left, np.inf)

    def is_unsure(self) -> bool:
        """Return whether the solution holds columns that are not sure."""
        self._pad()
        return bool((self.solution.x[~self.sure.are_sure(self.master.columns)] > _SOME).any())

    def fix_more(self, share: float) -> bool:
        """Fix some jobs and solve again; return whether anything is left to do."""
        master = self.master
        # Mixtures of what the relaxation holds in part are whole columns that take just as much.
        master.add(merged_columns(self.table, master.columns, self.solution.x))
        self._pad()
        open_jobs = np.flatnonzero(~self.fixed & ~self._whole())
        if not len(open_jobs):
            return False
        loss = self._losses()
        ranked = open_jobs[np.lexsort((open_jobs, -loss[open_jobs]))]
        return self.fix(ranked[: max(1, int(share * len(open_jobs)))].tolist())

    def fix(self, jobs: Sequence[int]) -> bool:
        """Fix these jobs, in turn, and solve again; return whether there is an answer."""
        master = self.master
        self._pad()
        for job in jobs:
            self._choose(job)
        free = ~self.fixed[master.arrays.job] & master.arrays.fits(self.table, self.room, self.money)
        free &= self.sure.are_sure(master.columns)
        low = np.zeros(len(master.columns))
        low[[column for column in self.chosen if column is not None]] = 1.0
        master.fix(np.arange(len(low)), low, np.maximum(np.where(free, np.inf, 0.0), low))
        try:
            again = master.solve()
        except SolverFailedError:
            # The plan is finished without prices then, and other dives go on.
            master.forget_basis()
            return False
        if again is None:
            return False
        self.solution = again
        return True

    def finish(self) -> WholePlan:
        """Return the plan with all jobs that are not fixed yet on their largest column, highest worth first."""
        self._pad()
        rest = np.flatnonzero(~self.fixed)
        for job in rest[np.lexsort((rest, -self.solution.alpha[rest]))].tolist():
            self._choose(job)
        count = len(self.master.columns)
        self.master.fix(np.arange(count), np.zeros(count), np.full(count, np.inf))
        columns: list[Column | None] = [None if c is None else self.master.columns[c] for c in self.chosen]
        return self.totals.plan(columns)

    def _pad(self) -> None:
        """Give columns that came after the solution a share of nothing."""
        missing = len(self.master.columns) - len(self.solution.x)
        self.solution = replace(self.solution, x=np.append(self.solution.x, np.zeros(missing)))

    def _whole(self) -> Bools:
        """Return which jobs hold one column whole, or are wholly left out."""
        whole: Bools = self.solution.u > _WHOLE
        whole[self.master.arrays.job[self.solution.x > _WHOLE]] = True
        return whole

    def _losses(self) -> Floats:
        """Return by job its cheapest column without a priced limit, less the worth of the job."""
        arrays, prices = self.master.arrays, self.solution.prices
        plain = np.flatnonzero(~arrays.touches(prices.limit.ravel() > 0))
        cost = prices.left_out.copy()
        np.minimum.at(cost, arrays.job[plain], arrays.usd[plain])
        loss: Floats = cost - self.solution.alpha
        return loss

    def _choose(self, job: int) -> None:
        """Fix the job on its largest column that fits, the cheapest among equals; on none where none fits."""
        arrays = self.master.arrays
        own = np.flatnonzero(arrays.job == job)
        order = own[np.lexsort((own, arrays.usd[own], -np.round(self.solution.x[own], 9)))]
        self.fixed[job] = True
        for number in order.tolist():
            column = self.master.columns[number]
            beside = self.totals.is_beside_mates(column, self.homes)
            if beside and self.totals.fits(column, self.room, self.money) and self.sure.is_sure(column):
                self.chosen[job] = number
                self.homes.update(self.totals.homes((column,)))
                self.room[column.use] -= column.amount
                self.money[self.table.team[job]] -= column.counted
                return
