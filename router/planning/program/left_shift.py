"""Move a job on one candidate to the earliest free slots at the same cost.

Prices do not change within a book, so there are many schedules of the same cost, and the program may answer with any.
This picks the one that starts first, job by job (priority, then name), without touching what other jobs hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.shared_limits import Load
from router.planning.problem.problem import PlacementProblem, Slot, slots_within_dates
from router.planning.problem.schedule import Holdings, SlotHold
from router.planning.rules.capacity import has_room
from router.planning.rules.egress_caps import full_cap, month_matters
from router.planning.rules.load import add_load, load_of

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
        if not has_room(problem, job, candidate, load, slot, share):
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
    window = [s for s in problem.slots_for(job, candidate) if has_room(problem, job, candidate, load, s, 1.0)]
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
