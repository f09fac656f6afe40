"""Find the least cost of one job in one region at given prices exactly, by the compact program of that job alone.

Paths know no whole slots: a job that needs 3.2 hours pays for 3.2 of the 4 that it holds. Where a path promises less
than the best unbroken run, this program says what is true, and gives the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from router.planning.columns.column import Column, Hold, priced_column
from router.planning.columns.runs import Surcharges
from router.planning.columns.table import Table
from router.planning.find.allowances import with_allowance
from router.planning.problem.problem import PlacementProblem
from router.planning.program.effort import Effort
from router.planning.program.formulation import Formulation, formulate, holdings_of
from router.planning.rules.budgets import paid_terms
from router.planning.rules.program import Program

_PHASE = "single jobs"
_GAP = 1e-3
_NODES = 20


@dataclass(frozen=True, slots=True)
class SingleValue:
    """A lower bound of the job's cost in the block, without moves, and a schedule that nearly reaches it."""

    bound: float
    column: Column | None


def solve_single(table: Table, charges: Surcharges, block: int, effort: Effort) -> SingleValue:
    """Return the job's least cost in the block at these prices."""
    job = table.jobs[int(table.block_job[block])]
    rows = table.members(np.array([block]))
    found = {table.rows[row].candidate.key: table.rows[row].candidate for row in rows.tolist()}
    candidates = tuple(replace(found[key], transfers=()) for key in sorted(found))
    problem = replace(
        table.problem,
        jobs=(with_allowance(job, None),),
        candidates={job.name: candidates},
        limits=table.problem.limits.model_copy(update={"teams": ()}),
        binding=frozenset(),
    )
    formulation = formulate(problem)
    program = _priced(table, problem, charges, block, formulation)
    program = program.fixed(dict.fromkeys(formulation.layout.u.values(), 0.0))
    solution = effort.solve(_PHASE, program, _GAP, None, _NODES)
    if not solution.values:
        return SingleValue(solution.bound, None)
    return SingleValue(solution.bound, _column(table, problem, formulation, solution.values, rows.tolist()))


def _priced(
    table: Table, problem: PlacementProblem, charges: Surcharges, block: int, formulation: Formulation
) -> Program:
    """Return the program with the prices of limits on what is held, and of the team's budget on what is paid."""
    number = int(table.block_job[block])
    dearer = 1.0 + float(charges.team[number])
    kind = {table.rows[row].candidate.key: table.kind[row] for row in table.members(np.array([block])).tolist()}
    program, layout = formulation.program, formulation.layout
    costs = {i: v.cost for i, v in enumerate(program.variables)}
    for (_, key, slot), x in layout.x.items():
        costs[x] += float(charges.slot[kind[key], slot])
    for i, paid in paid_terms(problem, layout, table.jobs[number]):
        # What the budget does not count of a variable's cost is its carbon.
        costs[i] = costs[i] * dearer - (costs[i] - paid) * (dearer - 1.0)
    for (pool, slot), v in layout.covered.items():
        costs[v] = -float(charges.cover[pool, slot])
    return program.minimising(costs)


def _column(
    table: Table, problem: PlacementProblem, formulation: Formulation, values: tuple[float, ...], rows: list[int]
) -> Column | None:
    """Return the program's answer as a column."""
    job = int(table.job[rows[0]])
    holds: list[Hold] = []
    for held in holdings_of(problem, formulation.layout, values).values():
        holds += table.rows_held(job, [(hold.slot.index, hold.key, hold.share) for hold in held])
    column = priced_column(table, holds) if holds else None
    return column if column is not None and column.counted <= table.allowance[job] else None
