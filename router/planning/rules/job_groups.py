"""Keep the placed jobs of a group (``group`` in their job files) in one region.

Rows: Σ_m y_jrm <= g_r for each member j and region r, Σ_r g_r <= 1. Design note rules-of-the-plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.rules.program import ProgramBuilder, ProgramLayout


def group_members(jobs: Iterable[Job]) -> Mapping[str, tuple[Job, ...]]:
    """Return the jobs of each group by its name, sorted; a group of one job has no one to be beside and is left out."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if job.group is not None:
            found.setdefault(job.group, []).append(job)
    return {name: tuple(found[name]) for name in sorted(found) if len(found[name]) > 1}


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


def add_group_rows(builder: ProgramBuilder, layout: ProgramLayout, groups: Mapping[str, tuple[Job, ...]]) -> None:
    """Add the rows of groups of jobs: Σ_m y_jrm <= g_r for each member, Σ_r g_r <= 1."""
    for name, members in groups.items():
        jobs = {job.name for job in members}
        used: dict[tuple[str, RegionId], list[tuple[int, float]]] = {}
        for (job, region, _), y in layout.y.items():
            if job in jobs:
                used.setdefault((job, region), []).append((y, 1.0))
        for region in sorted({region for _, region in used}):
            layout.g[name, region] = builder.binary(choice_name(name, region))
        for (job, region), terms in sorted(used.items()):
            builder.row(together_row(job, region), [*terms, (layout.g[name, region], -1.0)], "<=", 0.0)
        one = [(g, 1.0) for (group, _), g in layout.g.items() if group == name]
        builder.row(one_region_row(name), one, "<=", 1.0)


def choice_name(group: str, region: RegionId) -> str:
    """Return the name of the variable that chooses a region for a group."""
    return f"group {group} {region}"


def together_row(job: str, region: RegionId) -> str:
    """Return the name of the row that keeps a job with its group in a region."""
    return f"together {job} {region}"


def one_region_row(group: str) -> str:
    """Return the name of the row that keeps a group in one region."""
    return f"one region of group {group}"
