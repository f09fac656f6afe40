"""Draw the jobs of a window: those that hold or want a scarce limit around a slot in which it has a price."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from router.planning.columns.column import Column
from router.planning.columns.master import MasterSolution
from router.planning.columns.table import Bools, Floats, Table
from router.planning.columns.whole import WholePlan

_HALF_WIDTHS = (3, 6, 12)  # slots
_HOLDERS = 2 / 3  # of the jobs of a window: those that hold some of the limit
_LEAST_WEIGHT = 0.5  # dollars that every job counts beside its regret


class WindowChooser:
    """Draws windows at the prices of one relaxation: the same ones in every run.

    ``near`` are the columns by job that a better plan may hold.
    """

    def __init__(self, table: Table, solution: MasterSolution, near: Sequence[Sequence[Column]]) -> None:
        prices = solution.prices.limit
        size = table.capacity_by_slot.reshape(prices.shape)
        self._slots = table.slots
        self._prices = prices
        self._random = random.Random(0)
        worth = np.where(prices > 0, prices * np.where(np.isfinite(size), size, 0.0), 0.0).sum(axis=1)
        self._limits = np.flatnonzero(worth > 0).tolist()
        self._worth = worth[self._limits].tolist()
        index = {limit: number for number, limit in enumerate(self._limits)}
        self._wanted: Bools = np.zeros((len(self._limits), len(table.jobs), table.slots), dtype=bool)
        for job, columns in enumerate(near):
            for column in columns:
                for place in column.use.tolist():
                    number = index.get(place // table.slots)
                    if number is not None:
                        self._wanted[number, job, place % table.slots] = True

    def __bool__(self) -> bool:
        """Return whether some limit has a price."""
        return bool(self._limits)

    def draw(self, plan: WholePlan, regret: Floats, size: int) -> list[int]:
        """Return the jobs of the next window, in order: more often those of much regret, most of them holders."""
        number = self._random.choices(range(len(self._limits)), weights=self._worth)[0]
        limit = self._limits[number]
        slot = self._random.choices(range(self._slots), weights=self._prices[limit].tolist())[0]
        reach = self._random.choice(_HALF_WIDTHS)
        begin, end = max(0, slot - reach), min(self._slots, slot + reach + 1)
        low, high = limit * self._slots + begin, limit * self._slots + end
        holders = [
            job
            for job, column in enumerate(plan.columns)
            if column is not None and bool(((column.use >= low) & (column.use < high)).any())
        ]
        wanting = self._wanted[number, :, begin:end].any(axis=1)
        wanters = [job for job in np.flatnonzero(wanting).tolist() if job not in set(holders)]
        weight = np.maximum(0.0, regret) + _LEAST_WEIGHT
        chosen = self._some(holders, weight, max(round(_HOLDERS * size), size - len(wanters)))
        return sorted([*chosen, *self._some(wanters, weight, size - len(chosen))])

    def _some(self, jobs: Sequence[int], weight: Floats, max_jobs: int) -> list[int]:
        """Return at most so many of the jobs, drawn without replacement by weight."""
        keys = {job: self._random.random() ** (1.0 / float(weight[job])) for job in jobs}
        return sorted(jobs, key=lambda job: (-keys[job], job))[:max_jobs]
