"""Branches on which jobs are left out: their least bound is below every plan, and meets the best where all part."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pulp
import pytest

from router.planning.columns import left_out_branches
from router.planning.columns.left_out_branches import LeftOutBranch, least_branch
from router.planning.columns.master import MasterSolution
from router.planning.columns.runs import Prices
from router.planning.columns.table import Bools, Floats


class Night:
    """Jobs of one size and cost each; some number is left out, and the rest shares one limit."""

    def __init__(self, seed: int) -> None:
        made = Random(seed)
        self.size = [made.randint(1, 9) for _ in range(9)]
        self.usd = np.array([made.randint(1, 90) for _ in range(9)], dtype=np.float64)
        self.out = made.randint(1, 3)
        self.limit = max(sum(sorted(self.size)[: 9 - self.out]), sum(self.size) - made.randint(4, 16))
        self.asked = 0

    @property
    def best(self) -> float:
        """The least cost of all plans, one by one."""
        kept = combinations(range(9), 9 - self.out)
        costs = (self.usd[list(jobs)].sum() for jobs in kept if sum(self.size[j] for j in jobs) <= self.limit)
        return float(min(costs))

    def _solved(self, placed: Bools, left_out: Bools, usd: Floats) -> tuple[float, Floats] | None:
        program = pulp.LpProblem("night", pulp.LpMinimize)
        u = [program.add_variable(f"u{j}", float(left_out[j]), 0.0 if placed[j] else 1.0) for j in range(9)]
        program += pulp.lpSum(float(usd[j]) * (1 - u[j]) for j in range(9))
        program += pulp.lpSum(self.size[j] * (1 - u[j]) for j in range(9)) <= self.limit
        program += pulp.lpSum(u) <= self.out
        if program.solve(pulp.HiGHS(msg=False)) != pulp.LpStatusOptimal:
            return None
        return float(pulp.value(program.objective)), np.array([float(each.value() or 0.0) for each in u])

    def relax(self, placed: Bools, left_out: Bools) -> LeftOutBranch | None:
        self.asked += 1
        found = self._solved(placed, left_out, self.usd)
        return None if found is None else LeftOutBranch(placed, left_out, solution(found[1]), found[0])

    def could_place(self, branch: LeftOutBranch, job: int) -> bool:
        return self._solved(branch.placed | (np.arange(9) == job), branch.left_out, self.usd) is not None


def solution(u: Floats) -> MasterSolution:
    nothing = np.zeros(0)
    return MasterSolution(0.0, nothing, u, nothing, Prices(*[nothing] * 8))


def first_of(night: Night) -> LeftOutBranch:
    none = np.zeros(9, dtype=np.bool_)
    found = night.relax(none, none)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(40))
def test_the_least_bound_is_below_every_plan_and_meets_the_best(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    night = Night(seed)
    first = first_of(night)
    some = least_branch(first, night.best, night.usd, night.relax, night.could_place)
    assert first.bound - 1e-6 <= some.bound <= night.best + 1e-6
    monkeypatch.setattr(left_out_branches, "_MOST_BRANCHES", 10_000)
    every = least_branch(first, float("inf"), night.usd, night.relax, night.could_place)
    assert every.bound == pytest.approx(night.best), "where all is parted, a branch is a plan"


def test_branching_closes_what_the_relaxation_lacks_and_ends_where_it_is_enough() -> None:
    lacking = [night for night in map(Night, range(160)) if first_of(night).bound < 0.99 * night.best]
    closed = 0
    for night in lacking:
        night.asked = 0
        found = least_branch(first_of(night), 0.99 * night.best, night.usd, night.relax, night.could_place)
        closed += found.bound >= 0.99 * night.best
        assert night.asked <= left_out_branches._MOST_BRANCHES + 3
    assert len(lacking) >= 10
    assert closed >= 0.8 * len(lacking)


def test_where_the_bound_is_enough_nothing_is_asked() -> None:
    night = Night(0)
    first = first_of(night)
    night.asked = 0
    assert least_branch(first, first.bound, night.usd, night.relax, night.could_place) is first
    assert night.asked == 0
