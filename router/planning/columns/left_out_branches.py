"""Branch on which jobs are left out, where the relaxation leaves out parts of dear ones. Pure.

A plan that leaves out two jobs of a tier is bounded by a relaxation that leaves out two in all: parts of the dearest,
though the places of what they leave would not hold what comes in. So the bound is far below every plan. Here a job that
is left out in part is placed in one branch and left out in the other, until the least bound of all branches is near the
plan's cost. The cheapest such job is branched on first: on the dearest, the next dearest would be left out in its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from router.planning.columns.master import MasterSolution
from router.planning.columns.table import Bools, Floats

_MOST_BRANCHES = 16
_MOST_ASKED = 4  # jobs of a branch of which it is asked whether they can be placed at all
_PART = 1e-4  # of a job: less than that left out is none


@dataclass(frozen=True, eq=False)
class LeftOutBranch:
    """Plans that place the jobs of ``placed`` and leave out those of ``left_out``: their relaxation, and its bound."""

    placed: Bools
    left_out: Bools
    solution: MasterSolution
    bound: float


#: Returns the branch that places and leaves out these jobs; None where no plan does.
Relax = Callable[[Bools, Bools], LeftOutBranch | None]
#: Returns whether a plan of the branch could place this job.
CouldPlace = Callable[[LeftOutBranch, int], bool]


def least_branch(
    first: LeftOutBranch, enough: float, usd: Floats, relax: Relax, could_place: CouldPlace
) -> LeftOutBranch:
    """Return the branch with the least bound, of branches that together hold all plans of the first one.

    ``usd`` is what each job costs at least. The branch with the least bound is parted again while that is below
    ``enough``, up to a number of relaxations.
    """
    branches, solved = [first], 0
    while True:
        least = min(branches, key=lambda branch: branch.bound)
        jobs = _fractional_jobs(least, usd)
        if least.bound >= enough or not jobs or solved >= _MOST_BRANCHES:
            return least
        never = next((job for job in jobs[:_MOST_ASKED] if not could_place(least, job)), None)
        alone = np.arange(len(usd)) == (jobs[0] if never is None else never)
        parts = [relax(least.placed, least.left_out | alone)]
        if never is None:
            parts.append(relax(least.placed | alone, least.left_out))
        solved += len(parts)
        branches.remove(least)
        branches += [replace(part, bound=max(part.bound, least.bound)) for part in parts if part is not None]
        if not branches:
            return least


def _fractional_jobs(branch: LeftOutBranch, usd: Floats) -> list[int]:
    """Return the jobs that the relaxation leaves out in part, those with the least money in that part first."""
    part = np.minimum(branch.solution.u, 1 - branch.solution.u)
    jobs = np.flatnonzero((part > _PART) & ~branch.placed & ~branch.left_out)
    order: list[int] = jobs[np.argsort(part[jobs] * usd[jobs], kind="stable")].tolist()
    return order
