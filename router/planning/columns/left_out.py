"""Prove how many jobs must be left out, tier by tier, and bound the cost where as many are.

The first is the relaxation without costs, rounded up to whole jobs. The second is the relaxation at costs, branched on
who is left out while its bound is farther from the plan than the gap (:mod:`.left_out_branches`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pricing.units import format_count
from router.planning.columns.left_out_branches import LeftOutBranch, least_branch
from router.planning.columns.relaxation import PART_OF_GAP, Relaxer
from router.planning.columns.runs import NEVER
from router.planning.columns.table import Bools, Floats
from router.planning.columns.whole import WholePlan

_COST_ROUNDS, _PROOF_ROUNDS = 25, 40
_SINGLES = 0.5  # of the gap
_JOB = 1e-6  # of a job: rounding of the relaxation


class LeftOutBounds:
    """Bounds over plans that leave out as many jobs of each tier as a given one; columns stay in the relaxer's master.

    The master keeps the costs and the counts of the last bound.
    """

    def __init__(self, relaxer: Relaxer, gap: float, progress: Callable[[str], None]) -> None:
        self._relaxer, self._gap, self._progress = relaxer, gap, progress
        self._table, self._master = relaxer.table, relaxer.master
        self._counting = relaxer.without_costs()
        self._none: Bools = np.zeros(len(self._table.jobs), dtype=np.bool_)

    def prove(self, plan: WholePlan) -> bool:
        """Return whether no plan leaves out fewer, tier by tier: each tier's relaxation rounded up says as many."""
        return not any(
            left_out and self._could_leave_out_fewer(plan, tier, left_out, self._none)
            for tier, left_out in enumerate(plan.left_out)
        )

    def least_cost(self, plan: WholePlan) -> LeftOutBranch:
        """Return the least bound on the cost of plans that leave out as many, with its relaxation."""
        first = self._branch(plan, self._none, self._none)
        assert first is not None

        def relax(placed: Bools, left_out: Bools) -> LeftOutBranch | None:
            kept, out = (format_count(int(jobs.sum()), "job") for jobs in (placed, left_out))
            self._progress(f"bounding plans that place {kept} and leave out {out}")
            if self._is_late:
                return LeftOutBranch(placed, left_out, first.solution, first.bound)
            if left_out.any() and not self._could_leave_out(plan, left_out):
                return None
            found = self._branch(plan, placed, left_out)
            # The columns so far hold no such plan, which proves nothing.
            return found or LeftOutBranch(placed, left_out, first.solution, first.bound)

        def could_place(branch: LeftOutBranch, job: int) -> bool:
            return self._is_late or self._could_place(plan, branch, job)

        return least_branch(first, plan.usd * (1 - self._gap), self._least_usd(), relax, could_place)

    @property
    def _is_late(self) -> bool:
        return self._relaxer.effort.late(self._relaxer.phase)

    def _least_usd(self) -> Floats:
        """Return the cost of each job's cheapest column; 0 for a job that has none."""
        usd = np.full(len(self._table.jobs), NEVER)
        np.minimum.at(usd, self._master.arrays.job, self._master.arrays.usd)
        return np.where(usd < NEVER / 2, usd, 0.0)

    def _branch(self, plan: WholePlan, placed: Bools, left_out: Bools) -> LeftOutBranch | None:
        """Return the relaxation at costs where these jobs are held; None where the columns so far hold no plan."""
        relaxer = self._relaxer
        relaxer.hold(placed, left_out)
        self._master.set_column_costs(free=False)
        self._master.set_left_out(np.zeros(len(self._table.jobs)), np.array(plan.left_out, dtype=np.float64))
        if (placed.any() or left_out.any()) and self._master.solve() is None:
            return None
        _, bound = relaxer.over_runs(self._gap * PART_OF_GAP, _COST_ROUNDS)
        solution, bound = relaxer.over_schedules(self._gap, bound, _COST_ROUNDS, _SINGLES)
        return LeftOutBranch(placed, left_out, solution, bound.usd)

    def _could_place(self, plan: WholePlan, branch: LeftOutBranch, job: int) -> bool:
        """Return False where it is proven that no plan of the branch places the job."""
        alone = np.arange(len(self._table.jobs)) == job
        most = np.array(plan.left_out, dtype=np.float64)
        self._count(branch.placed, branch.left_out, alone, most)
        return self._master.solve() is None or _whole_jobs(self._least_counted(1)) < 1

    def _could_leave_out(self, plan: WholePlan, jobs: Bools) -> bool:
        """Return False where it is proven that a plan without these jobs leaves out more of one of their tiers."""
        return all(
            self._could_leave_out_fewer(plan, tier, plan.left_out[tier] + 1, jobs)
            for tier in np.unique(self._table.tier[jobs]).tolist()
        )

    def _could_leave_out_fewer(self, plan: WholePlan, tier: int, count: int, without: Bools) -> bool:
        """Return False where it is proven that plans without these jobs leave out ``count`` jobs of a tier, or more.

        Of the tiers above it no more are left out than the plan does.
        """
        most = np.bincount(self._table.tier, minlength=len(plan.left_out)).astype(np.float64)
        most[:tier] = plan.left_out[:tier]
        self._count(self._none, without, self._table.tier == tier, most)
        return _whole_jobs(self._least_counted(count)) < count

    def _count(self, placed: Bools, left_out: Bools, counted: Bools, max_per_tier: Floats) -> None:
        """Let the master count which of ``counted`` are left out, at most so many of a tier, with these jobs held."""
        self._counting.hold(placed, left_out)
        self._master.set_column_costs(free=True)
        self._master.set_left_out(counted.astype(np.float64), max_per_tier)

    def _least_counted(self, enough: int) -> float:
        """Return a lower bound on the jobs that are counted; the rounds end where it proves ``enough``, or cannot."""
        _, bound = self._counting.over_runs(0.0, _PROOF_ROUNDS)
        best = -math.inf
        for _ in range(_PROOF_ROUNDS):
            solution, found = self._counting.over_paths(0.0, 1, bound)
            if found.usd > best:
                best, bound = found.usd, found
            is_proven = _whole_jobs(best) >= enough
            if is_proven or solution.objective - best < _JOB or _whole_jobs(solution.objective) < enough:
                break
        return best


def _whole_jobs(share: float) -> int:
    """Return the fewest whole jobs that a bound on their number proves."""
    return max(0, math.ceil(share - _JOB))
