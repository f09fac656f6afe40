"""Make a plan quickly without a solver: job by job, each on the cheapest candidate that still fits.

This is the plan where the program's answer is late, and the start of the program's search. Order: priority, then jobs
that run already, then the least slack between window and fastest run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pricing.money import NANOS, Usd
from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.find.affinity import affinity_of
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.problem.precedence import tier_key
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.program.left_shift import earliest_run
from router.planning.rules.job_groups import group_members
from router.planning.rules.occupancy import Occupancy
from router.planning.rules.program import ProgramLayout


def greedy_holdings(problem: PlacementProblem) -> dict[str, tuple[SlotHold, ...]]:
    """Return holdings that keep every limit and budget; jobs that find no room are absent.

    Jobs that must stay come first, then those that were placed in time, and late ones last.
    """
    occupancy = Occupancy(problem)
    holdings: dict[str, tuple[SlotHold, ...]] = {}
    regions = _common_regions(problem)

    def rank(job: Job) -> tuple[int, int, bool, float, str]:
        kind = tier_key(problem, job)[0]
        return (kind, -job.priority, not _runs(problem, job), _slack(problem, job), job.name)

    for job in sorted(problem.jobs, key=rank):
        for cost, candidate in _cheapest_first(problem, job):
            region = candidate.region
            together = region in regions.get(affinity_of(job), (region,)) and occupancy.allows_region(job, region)
            if not together or not occupancy.allows_cost(job, cost):
                continue
            holds = earliest_run(problem, job, candidate, occupancy.load)
            if holds is not None:
                holdings[job.name] = holds
                occupancy.add(job, holds, cost)
                break
    return holdings


def _common_regions(problem: PlacementProblem) -> dict[str | None, frozenset[RegionId]]:
    """Return the regions of each group of jobs: those where all have candidates, else all."""
    regions: dict[str | None, frozenset[RegionId]] = {}
    for name, members in group_members(problem.jobs).items():
        own = [frozenset(c.region for c in problem.candidates[job.name]) for job in members]
        regions[name] = frozenset.intersection(*own) or frozenset.union(*own)
    return regions


def _runs(problem: PlacementProblem, job: Job) -> bool:
    """Return whether the job runs now."""
    return any(c.running for c in problem.candidates[job.name])


def _slack(problem: PlacementProblem, job: Job) -> float:
    """Return the hours of the window beyond the fastest run."""
    held = sum(slot.hours for slot in problem.window(job))
    return held - min(
        (c.reserved_hours(steps_to_do(job, running=c.running)) for c in problem.candidates[job.name]), default=0.0
    )


def _cheapest_first(problem: PlacementProblem, job: Job) -> list[tuple[Usd, Candidate]]:
    """Return candidates with their cost as budgets count it, least in the objective first."""

    def costs(c: Candidate) -> tuple[float, float]:
        steps, moves = steps_to_do(job, running=c.running), sum(t.dearest.dollars() for t in c.transfers)
        return c.expected_objective(steps) + moves, c.expected_usd(steps) + moves

    found = sorted(((*costs(c), c) for c in problem.candidates[job.name]), key=lambda row: (row[0], row[2].key))
    return [(Usd(round(cost * NANOS)), c) for _, cost, c in found]


def start_values(
    problem: PlacementProblem, layout: ProgramLayout, holdings: Mapping[str, Sequence[SlotHold]]
) -> dict[int, float]:
    """Return the whole-number variables of these holdings as the solver's start; it completes the others."""
    values = {u: float(name not in holdings) for name, u in layout.u.items()}
    held = {(name, h.key, h.slot.index) for name, holds in holdings.items() for h in holds}
    for place, x in layout.x.items():
        if problem.slots[place[2]].order or problem.job[place[0]].checkpoint is None:
            values[x] = float(place in held)
    first: dict[tuple[str, RegionId], str] = {}
    for name, holds in holdings.items():
        keys = {h.key for h in holds}
        regions = {c.key: c.region for c in problem.candidates[name] if c.key in keys}
        for h in holds:
            first.setdefault((name, regions[h.key]), h.slot.month)
    for (name, region, month), y in layout.y.items():
        values[y] = float(first.get((name, region)) == month)
    used = {(affinity_of(problem.job[name]), region) for name, region in first}
    values.update({g: float(chosen in used) for chosen, g in layout.g.items()})
    return values
