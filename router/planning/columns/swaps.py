"""Draw swaps: a job that would take a cheaper column, and the jobs that hold what this column needs.

Neighbourhoods by regret miss them: a job in the way mostly holds what it wants, and has no regret. Few jobs are chosen
anew slot by slot in a tenth of the time of 25.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from router.planning.columns.column import Column
from router.planning.columns.master import ROOM
from router.planning.columns.neighbourhoods import Improver
from router.planning.columns.table import Floats
from router.planning.columns.whole import WholePlan

_COLUMNS = 12  # of a job that are tried, the cheapest
_LEAST_GAIN = 0.01  # dollars
_MOST_JOBS = 8


@dataclass(frozen=True)
class Swap:
    """A column that a job could take, and the jobs to choose anew for it.

    ``most_saved`` is their regret and what the capacity that the column finds idle is worth, in dollars. ``added`` are
    the dollars that they would pay more if each job in the way took its cheapest column beside the first job's.
    """

    column: Column
    jobs: tuple[int, ...]
    most_saved: float
    added: float


class SwapChooser:
    """Finds the swaps of plans among the columns within ``slack`` dollars of their job's worth."""

    def __init__(self, improver: Improver, slack: float) -> None:
        self._improver, self._totals, self._table = improver, improver.totals, improver.table
        self._columns = [sorted(own, key=self._usd) for own in improver.near(slack)]
        self._costs = [[self._usd(column) for column in own] for own in self._columns]
        self._places = [[frozenset(column.use.tolist()) for column in own] for own in self._columns]

    def _usd(self, column: Column) -> float:
        prices = self._improver.solution.prices.move
        return column.usd + sum(float(prices[meter, month]) * gb for meter, month, gb in column.moves)

    def find(self, plan: WholePlan) -> list[Swap]:
        """Return the swaps of a plan that could save something, those that could save most by job first."""
        room = self._totals.capacity - self._totals.load(plan.columns)
        holders = _holders(plan)
        regret, price = np.maximum(0.0, self._improver.regret(plan)), self._improver.solution.prices.limit.ravel()
        swaps = []
        for job, present in enumerate(plan.columns):
            if present is None:
                continue
            usd, free = self._usd(present), room.copy()
            free[present.use] += present.amount
            for column, cost in list(zip(self._columns[job], self._costs[job], strict=True))[:_COLUMNS]:
                if usd - cost < _LEAST_GAIN:
                    break
                ways = self._in_the_way(plan, column, free, holders)
                if ways is None:
                    continue
                jobs = self._with_mates(plan, (job, *ways))
                if len(jobs) > _MOST_JOBS:
                    continue
                priced = column.use[price[column.use] > 0]
                idle = float(price[priced] @ np.maximum(0.0, room[priced]))
                most = float(regret[list(jobs)].sum()) + idle
                if most >= _LEAST_GAIN:
                    swaps.append(Swap(column, jobs, most, sum(ways.values()) + cost - usd))
        return sorted(swaps, key=lambda s: (-round(s.most_saved / len(s.jobs), 2), s.added, s.jobs, s.column.holds))

    def _in_the_way(
        self, plan: WholePlan, column: Column, free: Floats, holders: Mapping[int, Sequence[int]]
    ) -> dict[int, float] | None:
        """Return the jobs that leave enough of what a column needs, and their losses; None where they are too many."""
        short = column.amount - free[column.use]
        lack = {int(place): float(amount) for place, amount in zip(column.use, short, strict=True) if amount > ROOM}
        ways: dict[int, float] = {}
        if not lack:
            return ways
        others = {other for place in lack for other in holders.get(place, ()) if other != column.job}
        held_by = {other: held for other in others if (held := plan.columns[other]) is not None}
        losses = {other: self._loss(other, held, column) for other, held in held_by.items()}
        for other in sorted(losses, key=lambda job: (losses[job], job)):
            held = held_by[other]
            here = [
                (int(p), float(a)) for p, a in zip(held.use, held.amount, strict=True) if lack.get(int(p), 0) > ROOM
            ]
            if here:
                ways[other] = losses[other]
                for place, amount in here:
                    lack[place] -= amount
            if len(ways) == _MOST_JOBS - 1 or all(amount <= ROOM for amount in lack.values()):
                break
        return None if any(amount > ROOM for amount in lack.values()) else ways

    def _loss(self, job: int, held: Column, column: Column) -> float:
        """Return what the job would pay more for its cheapest column beside another one."""
        taken = frozenset(column.use.tolist())
        beside = (
            cost for places, cost in zip(self._places[job], self._costs[job], strict=True) if taken.isdisjoint(places)
        )
        return max(0.0, next(beside, np.inf) - self._usd(held))

    def _with_mates(self, plan: WholePlan, jobs: Sequence[int]) -> tuple[int, ...]:
        mates = {int(mate) for job in jobs for mate in self._table.mates(job)}
        return tuple(sorted(job for job in mates.union(jobs) if plan.columns[job] is not None))


def _holders(plan: WholePlan) -> Mapping[int, Sequence[int]]:
    """Return the jobs that hold something of each limit and slot."""
    holders: dict[int, list[int]] = {}
    for job, column in enumerate(plan.columns):
        for place in () if column is None else column.use.tolist():
            holders.setdefault(place, []).append(job)
    return holders
