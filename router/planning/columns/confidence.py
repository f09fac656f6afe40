"""Tell which columns leave their job as sure to be on time as it asks.

One offer is as sure as the job asks by construction; of several, each may make the job late. The relaxation holds such
columns all the same, so that its bound is one over all schedules; plans are chosen from the sure ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from router.planning.columns.column import Column, Hold, slot_holds
from router.planning.columns.table import Bools, Table
from router.planning.problem.on_time import unsure_jobs
from router.planning.problem.schedule import runs_of


class SureColumns:
    """Checks columns of one table, each once; all count as sure unless plans are to keep confidences."""

    def __init__(self, table: Table, *, keeps_confidence: bool) -> None:
        self._table = table
        self._keeps_confidence = keeps_confidence
        self._checked: dict[tuple[int, tuple[Hold, ...]], bool] = {}
        self._sure: list[bool] = []

    def is_sure(self, column: Column) -> bool:
        """Return whether the job is as sure as it asks with this column."""
        if not self._keeps_confidence or self._table.jobs[column.job].deadline is None or column.is_on_one_offer:
            return True
        key = (column.job, column.holds)
        sure = self._checked.get(key)
        if sure is None:
            job = self._table.jobs[column.job]
            runs = runs_of(self._table.problem, job, slot_holds(self._table, column))
            sure = self._checked[key] = not unsure_jobs((job,), {job.name: runs})
        return sure

    def are_sure(self, columns: Sequence[Column]) -> Bools:
        """Return which columns are sure, of a list that only grows from call to call."""
        self._sure += [self.is_sure(column) for column in columns[len(self._sure) :]]
        return np.array(self._sure, dtype=np.bool_)

    def unsure_jobs(self, columns: Sequence[Column]) -> frozenset[int]:
        """Return the jobs that some of these columns leave less sure than they ask."""
        return frozenset(column.job for column in columns if not self.is_sure(column))
