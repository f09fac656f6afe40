"""Round the relaxation to a whole plan: fix the jobs that would lose most, solve again, until every job is whole.

Columns that the relaxation holds whole stay free to move until they are fixed. A job that would lose most is one whose
cheapest column that touches nothing scarce costs far more than the value that the relaxation gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from router.planning.columns.column import Column, merged_columns
from router.planning.columns.master import Master, MasterSolution
from router.planning.columns.table import Bools, Floats, Ints
from router.planning.columns.whole import ROOM, Ledger, WholePlan
from router.planning.effort import Effort

_PHASE = "rounding"
_WHOLE = 1 - 1e-6
_SHARE = 0.04  # of the fractional jobs that are fixed before the program is solved again


def dive(master: Master, ledger: Ledger, solution: MasterSolution, effort: Effort, share: float = _SHARE) -> WholePlan:
    """Return the plan reached; the master is left as it was, with all columns free."""
    jobs = len(master.table.jobs)
    high = np.zeros(0)
    chosen: list[Column | None] = [None] * jobs
    fixed = np.zeros(jobs, dtype=np.bool_)
    while not effort.late(_PHASE):
        # Mixtures of what the relaxation holds in part are whole columns that take just as much.
        master.add(merged_columns(master.table, master.columns, solution.x))
        columns = master.columns
        owner = np.array([column.job for column in columns], dtype=np.int64)
        solution = replace(solution, x=np.append(solution.x, np.zeros(len(columns) - len(solution.x))))
        high = np.append(high, np.where(fixed[owner[len(high) :]], 0.0, np.inf))
        everything = np.arange(len(columns))
        whole = _whole_jobs(solution, owner, jobs)
        open_jobs = np.flatnonzero(~fixed & ~whole)
        if not len(open_jobs):
            break
        loss = _losses(master, columns, owner, solution)
        ranked = open_jobs[np.lexsort((open_jobs, -loss[open_jobs]))]
        room = ledger.capacity - ledger.load(chosen)
        money = np.append(master.table.team_left, np.inf) - ledger.spent(chosen)
        for job in ranked[: max(1, int(share * len(open_jobs)))].tolist():
            fixed[job] = True
            column = _largest_that_fits(columns, owner, solution, job, ledger, room, money)
            high[owner == job] = 0.0
            if column is None:
                continue
            chosen[job] = columns[column]
            high[column] = np.inf
            room[columns[column].use] -= columns[column].amount
            money[master.table.team[job]] -= columns[column].counted
        low = np.zeros(len(columns))
        for job in np.flatnonzero(fixed).tolist():
            if chosen[job] is not None:
                low[_place(columns, owner, job, chosen[job])] = 1.0
        for number in np.flatnonzero(~fixed[owner] & (high > 0)).tolist():
            if not ledger.fits(columns[number], room, money):
                high[number] = 0.0
        master.fix(everything, low, np.maximum(high, low))
        again = master.solve()
        if again is None:
            break
        solution = again
    plan = _finish(master, ledger, solution, chosen, fixed)
    everything, columns = np.arange(len(master.columns)), master.columns
    master.fix(everything, np.zeros(len(columns)), np.full(len(columns), np.inf))
    return plan


def _place(columns: Sequence[Column], owner: Ints, job: int, column: Column | None) -> int:
    return next(int(i) for i in np.flatnonzero(owner == job) if columns[int(i)] is column)


def _whole_jobs(solution: MasterSolution, owner: Ints, jobs: int) -> Bools:
    """Return which jobs hold one column whole, or are wholly left out."""
    whole: Bools = solution.u > _WHOLE
    held = owner[np.flatnonzero(solution.x > _WHOLE)]
    whole = whole.copy()
    whole[held] = True
    return whole[:jobs]


def _losses(master: Master, columns: Sequence[Column], owner: Ints, solution: MasterSolution) -> Floats:
    """Return by job its cheapest column without a priced limit, less the value of the job."""
    price = solution.prices.limit.ravel()
    free_cost = solution.prices.left_out.copy()
    for number, column in enumerate(columns):
        if not len(column.use) or not price[column.use].any():
            job = owner[number]
            free_cost[job] = min(free_cost[job], column.usd)
    return free_cost - solution.alpha


def _largest_that_fits(
    columns: Sequence[Column],
    owner: Ints,
    solution: MasterSolution,
    job: int,
    ledger: Ledger,
    room: Floats,
    money: Floats,
) -> int | None:
    """Return the job's column with the largest share that still fits, else its cheapest that does."""
    own = np.flatnonzero(owner == job)
    order = sorted(own.tolist(), key=lambda i: (-round(solution.x[i], 9), columns[i].usd, i))
    return next((i for i in order if ledger.fits(columns[i], room, money)), None)


def _finish(
    master: Master,
    ledger: Ledger,
    solution: MasterSolution,
    chosen: list[Column | None],
    fixed: Bools,
) -> WholePlan:
    """Return the plan with all jobs that are not fixed yet on their largest column that fits, dearest value first."""
    columns = master.columns
    owner = np.array([column.job for column in columns], dtype=np.int64)
    solution = replace(solution, x=np.append(solution.x, np.zeros(len(columns) - len(solution.x))))
    room = ledger.capacity - ledger.load(chosen)
    money = np.append(master.table.team_left, np.inf) - ledger.spent(chosen)
    rest = np.flatnonzero(~fixed)
    for job in rest[np.lexsort((rest, -solution.alpha[rest]))].tolist():
        column = _largest_that_fits(columns, owner, solution, job, ledger, room + ROOM, money)
        if column is not None:
            chosen[job] = columns[column]
            room[columns[column].use] -= columns[column].amount
            money[master.table.team[job]] -= columns[column].counted
    return ledger.plan(chosen)
