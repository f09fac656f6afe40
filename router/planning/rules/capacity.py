"""Bound what gangs hold together of each limit: quotas, stock, reservations, capacity of offers.

At every instant the gangs hold at most the limit's amount. What a candidate takes of each limit says
:mod:`router.planning.find.shared_limits`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.shared_limits import Load
from router.planning.problem.problem import PlacementProblem, Slot
from router.planning.rules.program import ProgramBuilder, ProgramLayout, limit_row

_ROUNDING = 1e-6  # of a limit's unit


def has_room(
    problem: PlacementProblem,
    job: Job,
    candidate: Candidate,
    load: Load,
    slot: Slot,
    share: float,
) -> bool:
    """Return whether the limits leave room for a share of the slot on the candidate beside ``load``."""
    return all(
        load.get((name, slot.index), 0.0) + amount * share <= problem.shared[name].amount + _ROUNDING
        for name, amount in problem.use.get((job.name, candidate.key), {}).items()
    )


def shortage(
    problem: PlacementProblem, job: Job, candidate: Candidate, load: Load, held: Sequence[tuple[Slot, float]]
) -> dict[str, int]:
    """Return by limit what the candidate lacks beside ``load`` to hold these shares of slots, in whole units."""
    short = {}
    for name, amount in problem.use[job.name, candidate.key].items():
        most = max(load.get((name, slot.index), 0.0) + amount * share for slot, share in held)
        more = math.ceil(most - problem.shared[name].amount - _ROUNDING)
        if more > 0:
            short[name] = more
    return short


def add_limit_rows(builder: ProgramBuilder, layout: ProgramLayout, problem: PlacementProblem) -> None:
    """Add Σ a_cp x_ct <= K_p for every limit that can bind, in every slot."""
    terms: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for (job, key, index), x in layout.x.items():
        for name, amount in problem.use[job, key].items():
            if name in problem.binding:
                terms.setdefault((name, index), []).append((x, float(amount)))
    for (name, index), held in sorted(terms.items()):
        room = problem.shared[name].amount - problem.held.get((name, index), 0.0)
        builder.row(limit_row(name, index), held, "<=", float(room))
