"""Find the jobs that take more of a limit, or of a team's budget, in one plan than in another. Pure.

Of many jobs only those that take most are named, so that comparing two large plans stays quick.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator, Mapping
from functools import cached_property

from pricing.money import NANOS_PER_CENT, Usd
from router.planning.document.plan_facts import LimitHold, PlanFacts

MOST_NAMED = 5  # jobs that one limit or budget gives as causes
_SLACK = 1e-6


class Takers:
    """The jobs that take more in ``later`` than in ``earlier``; answers are kept, as jobs often ask for the same."""

    def __init__(self, earlier: PlanFacts, later: PlanFacts) -> None:
        self._earlier, self._later = earlier, later
        self._by_hold: dict[tuple[str, object, object], tuple[str, ...]] = {}

    def of_limit(self, hold: LimitHold) -> tuple[str, ...]:
        """Return the other jobs that take more of the limit during the hold, those that take most first."""
        key = (hold.limit, hold.start, hold.end)
        if key not in self._by_hold:
            self._by_hold[key] = self._most_of(hold)
        return tuple(job for job in self._by_hold[key] if job != hold.job)[:MOST_NAMED]

    def of_team(self, team: str, without: str) -> tuple[str, ...]:
        """Return the team's jobs other than one that cost at least a cent more, the dearest rise first."""
        return tuple(job for job in self._by_team.get(team, ()) if job != without)[:MOST_NAMED]

    def _most_of(self, hold: LimitHold) -> tuple[str, ...]:
        """Return one job more than is named, so that the asking job can be left out."""
        best: list[tuple[float, str]] = []
        for least, job in self._changed.get(hold.limit, ()):
            if len(best) > MOST_NAMED and best[MOST_NAMED] < (least, job):
                break  # This job and all after it take less.
            rise = self._rise(hold, job)
            if rise > _SLACK:
                insort(best, (-rise, job))
        return tuple(job for _, job in best[: MOST_NAMED + 1])

    def _rise(self, hold: LimitHold, job: str) -> float:
        later, earlier = (
            facts.job_use(hold.limit, hold.start, hold.end, job) for facts in (self._later, self._earlier)
        )
        return later - earlier

    @cached_property
    def _changed(self) -> Mapping[str, list[tuple[float, str]]]:
        """Return by limit the jobs whose use of it changed, each after its greatest use below zero, in that order."""
        changed: dict[str, list[tuple[float, str]]] = {}
        for job, holds in self._later.holds_by_job.items():
            if holds == self._earlier.holds_by_job.get(job):
                continue
            most: dict[str, float] = {}
            for hold in holds:
                most[hold.limit] = max(most.get(hold.limit, 0.0), hold.amount)
            for limit, amount in most.items():
                changed.setdefault(limit, []).append((-amount, job))
        return {limit: sorted(jobs) for limit, jobs in changed.items()}

    @cached_property
    def _by_team(self) -> Mapping[str, tuple[str, ...]]:
        rises: dict[str, list[tuple[int, str]]] = {}
        for team, more, job in self._rises_in_cost():
            rises.setdefault(team, []).append((-more, job))
        return {team: tuple(job for _, job in heapq.nsmallest(MOST_NAMED + 1, jobs)) for team, jobs in rises.items()}

    def _rises_in_cost(self) -> Iterator[tuple[str, int, str]]:
        for job in self._later.plan.jobs:
            had = self._earlier.jobs[job.job].cost_usd if job.job in self._earlier.jobs else Usd(0)
            more = job.cost_usd.nanos - had.nanos
            if more > NANOS_PER_CENT:
                yield job.team, more, job.job
