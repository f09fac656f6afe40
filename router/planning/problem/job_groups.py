"""Keep the placed jobs of a group (``group`` in their job files) in one region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold


def mates_region(problem: PlacementProblem, job: Job, holdings: Mapping[str, Sequence[SlotHold]]) -> RegionId | None:
    """Return the region of the placed jobs of the job's group other than itself; None where there are none."""
    if job.group is None:
        return None
    for other in problem.jobs:
        if other.group == job.group and other.name != job.name and holdings.get(other.name):
            return problem.candidate(other.name, holdings[other.name][0].key).region
    return None


def are_together(problem: PlacementProblem, holdings: Mapping[str, Sequence[SlotHold]]) -> bool:
    """Return whether the placed jobs of each group are in one region."""
    regions: dict[str, RegionId] = {}
    for job in problem.jobs:
        holds = holdings.get(job.name)
        if job.group is not None and holds:
            region = problem.candidate(job.name, holds[0].key).region
            if regions.setdefault(job.group, region) != region:
                return False
    return True
