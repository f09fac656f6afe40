"""Solve the relaxation again with more of a limit, from the columns that a plan ended with.

The relaxation is opened anew over all these columns, once for all limits. For the limits as they are, and then for each
raise in turn, all jobs are priced until no schedule is left that would improve it, or for a number of rounds. At the
end all are solved over the same columns, so that more of a limit is never worth less than nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from router.planning.columns.blocks import BlockPricer
from router.planning.columns.clique_rows import CliqueRow, find_clique_rows
from router.planning.columns.column import Column, counted_again
from router.planning.columns.master import Master
from router.planning.columns.relaxation import Relaxer
from router.planning.columns.runs import RunPricer
from router.planning.columns.table import Floats, Table
from router.planning.program.effort import Effort
from router.planning.program.solve import LimitRaise, LimitWorth
from router.planning.program.solver import SolverFailedError

_PHASE = "shadow prices"
_RUN_ROUNDS, _ROUNDS, _JOB_ROUNDS = 5, 20, 2_000
_SHARES, _RAISED_SHARES = 2_000, 300  # of slots in exact programs of single jobs: of the first relaxation, of others


@dataclass(frozen=True)
class EndedRelaxation:
    """The columns of a plan, how many jobs of each tier may be left out, and what a job left out costs.

    Each relaxation is priced by at most ``rounds``: more of fewer jobs, whose rounds are quick.
    """

    table: Table
    pricer: RunPricer
    columns: tuple[Column, ...]
    left_out_usd: Floats
    most_left_out: Floats
    rounds: int

    @classmethod
    def of(cls, master: Master, pricer: RunPricer) -> EndedRelaxation:
        """Return the relaxation of a master as it is now."""
        rounds = _ROUNDS + _JOB_ROUNDS // max(1, len(master.table.jobs))
        return cls(master.table, pricer, tuple(master.columns), master.left_out_usd, master.most_left_out, rounds)

    def worths(self, raises: Sequence[LimitRaise], effort: Effort) -> tuple[LimitWorth, ...]:
        """Return the worth of each raise alone, for as many jobs left out; of fewer where time or solver gave out.

        Costs are those of the objective: thresholds and carbon count.
        """
        tables = self._raised_tables(raises)
        try:
            return self._solved(tables, effort)
        except SolverFailedError:
            effort.failed(_PHASE)
            return ()

    def _raised_tables(self, raises: Sequence[LimitRaise]) -> tuple[Table, ...]:
        """Return the table as it is and with each raise, all with the same limits."""
        cliques = [_cliques(self.table, more.limit, more.by) for more in raises]
        table = self.table.with_cliques([clique for found in cliques for clique in found])
        tables, begin = [table], len(self.table.capacity)
        for more, found in zip(raises, cliques, strict=True):
            capacity = table.capacity.copy()
            capacity[table.limit_names.index(more.limit)] += more.by
            # What follows from the limit as it was does not hold; what follows from the raised one does.
            capacity[[table.limit_names.index(clique.name) for clique in _cliques(self.table, more.limit, 0)]] = np.inf
            capacity[begin : begin + len(found)] = [clique.jobs for clique in found]
            begin += len(found)
            tables.append(replace(table, capacity=capacity))
        return tuple(tables)

    def _solved(self, tables: Sequence[Table], effort: Effort) -> tuple[LimitWorth, ...]:
        """Return what each table's relaxation costs less than the first one's."""
        master = Master(tables[0], self.left_out_usd)
        master.set_left_out(self.left_out_usd, self.most_left_out)
        master.add([counted_again(tables[0], column) for column in self.columns])
        blocks = BlockPricer(tables[0], tables[0])
        bounds: list[float] = []
        ended: list[bool] = []
        for table in tables:
            if effort.late(_PHASE):
                break
            master.set_limits(table)
            relaxer = Relaxer(table, master, self.pricer.over(table), effort, _PHASE, blocks.over(table))
            _, first = relaxer.over_runs(0.0, _RUN_ROUNDS)
            _, bound, is_ended = relaxer.exhausted(self.rounds, first.prices, _RAISED_SHARES if bounds else _SHARES)
            bounds.append(bound)
            ended.append(is_ended)
        costs = []
        for table in tables[: len(bounds)]:
            master.set_limits(table)
            costs.append(master.solved().objective)
        return tuple(
            LimitWorth(max(0.0, (costs[0] if ended[0] and sure else bounds[0]) - cost), ended[0] and sure)
            for cost, sure in zip(costs[1:], ended[1:], strict=True)
        )


def _cliques(table: Table, name: str, more: int) -> tuple[CliqueRow, ...]:
    """Return the clique rows of a limit with so much more of it."""
    problem = table.problem
    limit = problem.shared[name]
    raised = {**problem.shared, name: replace(limit, amount=limit.amount + more)}
    return find_clique_rows(replace(problem, shared=raised, binding=frozenset({name})))
