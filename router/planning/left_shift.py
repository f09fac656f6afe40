"""Move a job on one candidate to the earliest free slots at the same cost.

Prices do not change within a book, so there are many schedules of the same cost, and the program may answer with any.
This picks the one that starts first, job by job (priority, then name), without touching what other jobs hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.jobs.spec import Job
from router.planning.candidates import Candidate, steps_to_do
from router.planning.problem import PlacementProblem, Slot, slots_within_dates
from router.planning.schedule import Holdings, SlotHold

_SLACK = 1e-9


def compact_holdings(problem: PlacementProblem, holdings: Holdings) -> dict[str, tuple[SlotHold, ...]]:
    """Return the same jobs on the same candidates, never later; limits hold as before."""
    result = dict(holdings)
    load = load_of(problem, result)
    for job in sorted(problem.jobs, key=lambda j: (-j.priority, j.name)):
        holds = result.get(job.name)
        if holds is None or len({h.key for h in holds}) != 1:
            continue
        candidate = problem.candidate(job.name, holds[0].key)
        add_load(load, problem, job, holds, -1.0)
        earlier = _earliest(problem, job, candidate, load, holds)
        result[job.name] = earlier if earlier is not None else holds
        add_load(load, problem, job, result[job.name], 1.0)
    return result


Load = dict[tuple[str, int], float]


def load_of(problem: PlacementProblem, holdings: Mapping[str, Sequence[SlotHold]]) -> Load:
    """Return what all jobs take of every limit, by limit and slot."""
    load: Load = {}
    for name, holds in holdings.items():
        add_load(load, problem, problem.job[name], holds, 1.0)
    return load


def add_load(load: Load, problem: PlacementProblem, job: Job, holds: Sequence[SlotHold], sign: float) -> None:
    """Add (or with -1 subtract) what a job holds."""
    for hold in holds:
        for name, amount in problem.use[job.name, hold.key].items():
            place = (name, hold.slot.index)
            load[place] = load.get(place, 0.0) + sign * amount * hold.share


def room_for(problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, slot: Slot, share: float) -> bool:
    """Return whether the limits leave room for the candidate in the slot beside ``load``."""
    return all(
        load.get((name, slot.index), 0.0) + amount * share <= problem.shared[name].amount + 1e-6
        for name, amount in problem.use.get((job.name, candidate.key), {}).items()
    )


def load_without(problem: PlacementProblem, holdings: Mapping[str, Sequence[SlotHold]], job: str) -> Load:
    """Return what all other jobs take of every limit, by limit and slot."""
    return load_of(problem, {name: holds for name, holds in holdings.items() if name != job})


def earliest_run(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, slots: Sequence[Slot] | None = None
) -> tuple[SlotHold, ...] | None:
    """Return the first unbroken run that does all the job's steps on one candidate; None if there is none."""
    window = slots_within_dates(candidate, problem.window(job) if slots is None else tuple(slots))
    for first in range(len(window)):
        if not may_begin(problem, job, candidate, window[first]):
            return None
        run = run_from(problem, job, candidate, load, window[first:])
        if run is not None:
            return run
    return None


def may_begin(problem: PlacementProblem, job: Job, candidate: Candidate, slot: Slot) -> bool:
    """Return whether a run of the candidate may begin in the slot, or continues in it from before ``now``."""
    return (candidate.running and slot.index == 0) or problem.may_start(job, slot)


def run_from(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, slots: Sequence[Slot]
) -> tuple[SlotHold, ...] | None:
    """Return the unbroken run from the first of ``slots`` that does all the job's steps.

    None where the slots or the limits end before.
    """
    continues = candidate.running and slots[0].index == 0
    need = steps_to_do(job, running=continues) / candidate.on_time_steps_per_hour
    need += 0.0 if continues else candidate.startup_hours
    holds: list[SlotHold] = []
    for slot in slots:
        whole = slot.order or job.checkpoint is None
        share = 1.0 if whole else min(1.0, need / slot.hours)
        if not room_for(problem, job, candidate, load, slot, share):
            return None
        holds.append(SlotHold(slot, candidate.key, share))
        need -= slot.hours
        if need <= _SLACK:
            return tuple(holds)
    return None


def _earliest(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, holds: Sequence[SlotHold]
) -> tuple[SlotHold, ...] | None:
    run = earliest_run(problem, job, candidate, load)
    if run is None or run[-1].slot.index > holds[-1].slot.index or run[0].slot.index > holds[0].slot.index:
        return None
    if run[0].slot.month != holds[0].slot.month and any(not t.free for t in candidate.transfers):
        return None
    return run
