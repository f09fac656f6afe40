"""Say whether a job fits beside those that are placed, by every rule that jobs share."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.find.affinity import affinity_of
from router.planning.find.allowances import least_allowance, team_allowances
from router.planning.find.shared_limits import Load
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.rules.job_groups import group_members
from router.planning.rules.load import add_load, fits_beside


class Occupancy:
    """Counts what placed jobs take of limits, caps on egress and teams' budgets, and where their groups are."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.load: Load = {}
        self._problem = problem
        self._money = dict(team_allowances(problem.limits))
        self._groups = group_members(problem.jobs)
        self._regions: dict[str | None, RegionId] = {}

    def allows_cost(self, job: Job, counted: Usd) -> bool:
        """Return whether the job's budget and what its team has left carry a cost as budgets count it."""
        allowed = least_allowance(job, self._money.get(job.team))
        return allowed is None or counted <= allowed

    def allows_region(self, job: Job, region: RegionId) -> bool:
        """Return whether the placed jobs of the job's group are in this region, or none is placed."""
        return self._regions.get(affinity_of(job), region) == region

    def allows(self, job: Job, holds: Sequence[SlotHold], counted: Usd) -> bool:
        """Return whether every rule allows what the job would hold, all in one region, beside the placed jobs."""
        region = self._problem.candidate(job.name, holds[0].key).region
        allowed = self.allows_region(job, region) and self.allows_cost(job, counted)
        return allowed and fits_beside(self._problem, job, holds, self.load)

    def add(self, job: Job, holds: Sequence[SlotHold], counted: Usd) -> None:
        """Count a job as placed."""
        add_load(self.load, self._problem, job, holds, 1.0)
        if affinity_of(job) in self._groups:
            self._regions[affinity_of(job)] = self._problem.candidate(job.name, holds[0].key).region
        if job.team in self._money:
            self._money[job.team] -= counted
