"""Sum what placed jobs take of limits and of caps on egress, and say whether more fits beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.jobs.spec import Job
from router.planning.find.shared_limits import Load
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.rules.capacity import has_room
from router.planning.rules.egress_caps import gb_by_cap, have_room


def load_of(problem: PlacementProblem, holdings: Mapping[str, Sequence[SlotHold]]) -> Load:
    """Return what all jobs take of every limit, by limit and slot."""
    load: Load = {}
    for name, holds in holdings.items():
        add_load(load, problem, problem.job[name], holds, 1.0)
    return load


def add_load(load: Load, problem: PlacementProblem, job: Job, holds: Sequence[SlotHold], sign: float) -> None:
    """Add (or with -1 subtract) what a job holds, and what it moves out of capped clouds."""
    for hold in holds:
        for name, amount in problem.use[job.name, hold.key].items():
            place = (name, hold.slot.index)
            load[place] = load.get(place, 0.0) + sign * amount * hold.share
    for place, gb in gb_by_cap(problem, job, holds).items():
        load[place] = load.get(place, 0.0) + sign * gb


def load_without(problem: PlacementProblem, holdings: Mapping[str, Sequence[SlotHold]], job: str) -> Load:
    """Return what all other jobs take of every limit, by limit and slot."""
    return load_of(problem, {name: holds for name, holds in holdings.items() if name != job})


def fits_beside(problem: PlacementProblem, job: Job, holds: Sequence[SlotHold], load: Load) -> bool:
    """Return whether limits and caps on egress leave room for what the job would hold beside ``load``."""
    candidates = {hold.key: problem.candidate(job.name, hold.key) for hold in holds}
    rooms = (has_room(problem, job, candidates[hold.key], load, hold.slot, hold.share) for hold in holds)
    return all(rooms) and have_room(problem, job, holds, load)
