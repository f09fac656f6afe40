"""Branch on which jobs are left out, where the relaxation leaves out parts of dear ones. Pure.

A plan that leaves out two jobs of a tier is bounded by a relaxation that leaves out two in all: parts of the dearest,
though the places of what they leave would not hold what comes in. So the bound is far below every plan. Here a dear job
is placed in one branch and left out in the other, until the least bound of all branches is near the plan's cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

    ``usd`` is what each job costs at least. Branches are parted while the least bound is below ``enough``, up to a
    number of relaxations.
    """
    branches, solved = [first], 0
    while True:
        least = min(branches, key=lambda branch: branch.bound)
        jobs = _parted_jobs(least, usd)
        if least.bound >= enough or not jobs or solved >= _MOST_BRANCHES:
            return least
        never = next((job for job in jobs[:_MOST_ASKED] if not could_place(least, job)), None)
        alone = np.arange(len(usd)) == (jobs[0] if never is None else never)
        parts = [relax(least.placed, least.left_out | alone)]
        if never is None:
            parts.append(relax(least.placed | alone, least.left_out))
        solved += len(parts)
        branches.remove(least)
        branches += [_above(part, least.bound) for part in parts if part is not None]
        if not branches:
            return least


def _above(branch: LeftOutBranch, bound: float) -> LeftOutBranch:
    """Return the branch with a bound that is no lower than that of what it is a part of."""
    return LeftOutBranch(branch.placed, branch.left_out, branch.solution, max(branch.bound, bound))


def _parted_jobs(branch: LeftOutBranch, usd: Floats) -> list[int]:
    """Return the jobs that are left out in part, those with the most money in it first."""
    part = np.minimum(branch.solution.u, 1 - branch.solution.u)
    parted = np.flatnonzero((part > _PART) & ~branch.placed & ~branch.left_out)
    order: list[int] = parted[np.argsort(part[parted] * usd[parted], kind="stable")].tolist()
    return order
