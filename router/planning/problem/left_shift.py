"""Move a job on one candidate to the earliest free slots at the same cost.

Prices do not change within a book, so there are many schedules of the same cost, and the program may answer with any.
This picks the one that starts first, job by job (priority, then name), without touching what other jobs hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.problem.egress_caps import cap_place, full_cap, leaving_gb, month_matters
from router.planning.problem.problem import PlacementProblem, Slot, slots_within_dates
from router.planning.problem.schedule import Holdings, SlotHold

_SLACK = 1e-9


def compact_holdings(
    problem: PlacementProblem, holdings: Holdings, fixed: frozenset[str] = frozenset()
) -> dict[str, tuple[SlotHold, ...]]:
    """Return the same jobs on the same candidates, never later, ``fixed`` jobs as they are; limits hold as before."""
    result = dict(holdings)
    load = load_of(problem, result)
    for job in sorted(problem.jobs, key=lambda j: (-j.priority, j.name)):
        holds = result.get(job.name)
        if holds is None or job.name in fixed or len({h.key for h in holds}) != 1:
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
    """Add (or with -1 subtract) what a job holds, and what it moves out of capped clouds."""
    for hold in holds:
        for name, amount in problem.use[job.name, hold.key].items():
            place = (name, hold.slot.index)
            load[place] = load.get(place, 0.0) + sign * amount * hold.share
    for place, gb in egress_of_holds(problem, job, holds).items():
        load[place] = load.get(place, 0.0) + sign * gb


def egress_of_holds(problem: PlacementProblem, job: Job, holds: Sequence[SlotHold]) -> Mapping[tuple[str, int], float]:
    """Return what the holdings, in order of time, take of caps: each region in the month of its first slot."""
    taken: dict[tuple[str, int], float] = {}
    seen: set[RegionId] = set()
    known: dict[str, Candidate] = {}
    for hold in holds if problem.limits.egress_caps_gb else ():
        if hold.key not in known:
            known[hold.key] = problem.candidate(job.name, hold.key)
        candidate = known[hold.key]
        if candidate.region not in seen:
            seen.add(candidate.region)
            for cloud, gb in leaving_gb(problem.limits, candidate.transfers, candidate.region).items():
                place = cap_place(cloud, hold.slot.month)
                taken[place] = taken.get(place, 0.0) + gb
    return taken


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
    first = 0
    while first < len(window) and may_begin(problem, job, candidate, window[first]):
        run, first = _run_or_next(problem, job, candidate, load, window, first)
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

    None where the slots or the limits end before, or maintenance interrupts them.
    """
    return _run_or_next(problem, job, candidate, load, slots, 0)[0]


def _run_or_next(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, slots: Sequence[Slot], first: int
) -> tuple[tuple[SlotHold, ...] | None, int]:
    """Return the run of :func:`run_from` that begins in slot ``first``, else the next slot in which one may begin.

    A run that begins later needs the slot that lacks room as well.
    """
    if full_cap(problem, candidate, load, slots[first].month) is not None:
        return None, first + 1
    continues = candidate.running and slots[first].index == 0
    need = steps_to_do(job, running=continues) / candidate.on_time_steps_per_hour
    need += 0.0 if continues else candidate.startup_hours
    holds: list[SlotHold] = []
    for number in range(first, len(slots)):
        slot = slots[number]
        if holds and slot.index != holds[-1].slot.index + 1:
            return None, number  # Maintenance lies between the two.
        whole = slot.order or job.checkpoint is None
        share = 1.0 if whole else min(1.0, need / slot.hours)
        if not room_for(problem, job, candidate, load, slot, share):
            return None, number + 1
        holds.append(SlotHold(slot, candidate.key, share))
        need -= slot.hours
        if need <= _SLACK:
            return tuple(holds), first
    return None, len(slots)


def _earliest(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, holds: Sequence[SlotHold]
) -> tuple[SlotHold, ...] | None:
    run = earliest_run(problem, job, candidate, load)
    pieces = _earliest_pieces(problem, job, candidate, load, _count_starts(candidate, holds))
    if pieces is not None and (run is None or _is_later(run, pieces)):
        run = pieces
    if run is None or _is_later(run, holds):
        return None
    if run[0].slot.month != holds[0].slot.month and month_matters(problem, candidate):
        return None
    return run


def _is_later(run: Sequence[SlotHold], holds: Sequence[SlotHold]) -> bool:
    return run[-1].slot.index > holds[-1].slot.index or run[0].slot.index > holds[0].slot.index


def _count_starts(candidate: Candidate, holds: Sequence[SlotHold]) -> int:
    """Return how often these whole holdings of one candidate start."""
    begins = [i for i, hold in enumerate(holds) if i == 0 or hold.slot.index != holds[i - 1].slot.index + 1]
    return len(begins) - int(candidate.running and holds[0].slot.index == 0)


def _earliest_pieces(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, starts: int
) -> tuple[SlotHold, ...] | None:
    """Return the job's steps in all the time that maintenance and limits leave from the first slot on.

    None for a job that cannot resume, without maintenance, or where that takes more starts than ``starts``.
    """
    if job.checkpoint is None or not candidate.closed:
        return None
    need = steps_to_do(job, running=candidate.running) / candidate.on_time_steps_per_hour
    window = [s for s in problem.slots_for(job, candidate) if room_for(problem, job, candidate, load, s, 1.0)]
    breaks = [i for i in range(1, len(window)) if window[i].index != window[i - 1].index + 1]
    holds: list[SlotHold] = []
    for first, end in pairwise([0, *breaks, len(window)]):
        block = window[first:end]
        goes_on = bool(block) and candidate.running and block[0].index == 0
        startup = 0.0 if goes_on else candidate.startup_hours
        if not block or sum(s.hours for s in block) <= startup or not (goes_on or problem.may_start(job, block[0])):
            continue
        need, starts = need + startup, starts - int(not goes_on)
        for slot in block:
            share = 1.0 if slot.order else min(1.0, need / slot.hours)
            holds.append(SlotHold(slot, candidate.key, share))
            need -= slot.hours
            if need <= _SLACK:
                return tuple(holds) if starts >= 0 else None
    return None
