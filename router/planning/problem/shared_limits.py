"""Count the limits that jobs share (quotas, stock, reservations, capacity of offers) and find which can bind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from router.jobs.limits import Limits
from router.planning.find.candidate import Candidate, GangPart
from router.planning.find.feasibility import covers, limit_use


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A limit on the use by all gangs: at every instant at most ``amount``, in ``unit``."""

    name: str
    amount: int
    unit: str


Load = dict[tuple[str, int], float]
"""Use of limits by all jobs together, by name and slot index; of a cap on egress by its name and slot 0."""

LimitUse = Mapping[str, int]
"""Use of limits by name, each in its own unit; a limit that is not touched is absent."""


def use_of(candidate: Candidate, limits: Limits) -> LimitUse:
    """Return what a candidate takes of every limit of the file and of its offers' capacity, its fallback included.

    An order stays executable at every instant: what a run may fall back on is kept for it while it runs. It falls back
    after its gang is given up, so that a limit on both counts the larger of the two.
    """
    own, behind = use_of_parts(candidate.parts, limits), use_of_parts(candidate.kept_free, limits)
    return own | {name: max(amount, own.get(name, 0)) for name, amount in behind.items()}


class UseCounter:
    """Counts the use of limits by many candidates, each gang once: equal gangs share one mapping."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Keyed by identity because listings are slow to hash; the parts are kept so that none is reused.
        self._known: dict[tuple[tuple[tuple[int, int], ...], ...], tuple[Candidate, LimitUse]] = {}

    def use(self, candidate: Candidate) -> LimitUse:
        """Return what the candidate takes, as :func:`use_of`."""
        gangs = (candidate.parts, candidate.kept_free)
        key = tuple(tuple((id(part.listing), part.machines) for part in gang) for gang in gangs)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (candidate, use_of(candidate, self._limits))
        return known[1]


def use_of_parts(parts: Iterable[GangPart], limits: Limits) -> dict[str, int]:
    """Return the same of machines that together are no candidate; what a limit cannot count is left out."""
    taken: dict[str, int] = {}
    for part in parts:
        if part.listing.cap is not None:
            name = f"capacity {part.listing.name}"
            taken[name] = taken.get(name, 0) + part.machines
        for limit in limits.limits:
            if covers(limit, part.listing):
                used = limit_use(limit, part.listing, part.machines)
                if used:
                    taken[limit.name] = taken.get(limit.name, 0) + used
    return taken


def limit_amounts(candidates: Iterable[Candidate], limits: Limits) -> Mapping[str, SharedLimit]:
    """Return every limit that any of the candidates touches, by name."""
    shared_limits = {limit.name: SharedLimit(limit.name, limit.amount, limit.unit) for limit in limits.limits}
    for candidate in candidates:
        for part in (*candidate.parts, *candidate.kept_free):
            if part.listing.cap is not None:
                name = f"capacity {part.listing.name}"
                shared_limits[name] = SharedLimit(name, part.listing.cap, "machines")
    return shared_limits


def binding_limits(
    by_job: Mapping[str, Sequence[Candidate]],
    use: Mapping[tuple[str, str], LimitUse],
    shared_limits: Mapping[str, SharedLimit],
) -> frozenset[str]:
    """Return the names of limits that could bind.

    A limit could bind if every job on its greediest candidate would together take more than there is.
    """
    most: dict[str, int] = {}
    for job, candidates in by_job.items():
        peak: dict[str, int] = {}
        for candidate in candidates:
            for name, amount in use[job, candidate.key].items():
                peak[name] = max(peak.get(name, 0), amount)
        for name, amount in peak.items():
            most[name] = most.get(name, 0) + amount
    return frozenset(name for name, amount in most.items() if amount > shared_limits[name].amount)
