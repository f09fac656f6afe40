"""Say what committed spend covers: the on-demand dollars of a slot, up to what the slot's commitment buys.

A gang uses p κ dollars of on-demand price for an hour that it holds: p is the price of its on-demand machines that the
commitment matches, κ the share of reserved time that is expected to be billed. Orders alone count. Covered dollars cost
nothing more, since the commitment is paid anyway. Rules: ``docs/design/rules-of-the-plan.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from pricing.money import Usd, UsdPerHour
from router.jobs.limits import Commitment, Limits
from router.jobs.spec import Job
from router.planning.find.allowances import has_allowance
from router.planning.find.candidate import Candidate
from router.planning.find.listings import cover_pool_of
from router.planning.problem.problem import PlacementProblem, Slot

_HOUR = timedelta(hours=1)
_MICRO = timedelta(microseconds=1)
Place = tuple[int, int]
"""The number of a pool, and the index of a slot. A pool is named by the first commitment of its scope in the file."""


@dataclass(frozen=True, slots=True)
class CoverRate:
    """The use of an hour held on a candidate: the pool, its on-demand dollars an hour, the share of them billed."""

    pool: int
    usd_per_hour: UsdPerHour
    billed: float

    @property
    def dollars(self) -> float:
        """Return the dollars that an hour held uses, for the program only."""
        return self.usd_per_hour.dollars() * self.billed


def has_cover(limits: Limits) -> bool:
    """Return whether committed spend covers anything that matches."""
    return bool(limits.commitments)


def pool_count(limits: Limits) -> int:
    """Return one more than the highest number of a pool."""
    return len(limits.commitments)


def cover_rate(limits: Limits, candidate: Candidate) -> CoverRate | None:
    """Return what the candidate uses of committed spend; None where no commitment matches any part of it.

    Its parts on demand never match two of them: of such machine types no mixed gang is made.
    """
    rate, pool = UsdPerHour(0), None
    for part in candidate.parts if has_cover(limits) else ():
        found = cover_pool_of(limits, part.listing)
        if found is not None:
            pool, rate = found, rate + part.offer.usd_per_hour.times(part.machines)
    return None if pool is None else CoverRate(pool, rate, candidate.billed_per_reserved)


def fill_rank(limits: Limits, job: Job, candidate: Candidate) -> tuple[bool, float, str]:
    """Return the order in which a job works on the candidates that it holds, the least first: the cheapest step.

    Machines that committed spend pays come before all others. A step's carbon counts. Neither is so for a job that a
    budget holds: the program may have counted on the least money.
    """
    if has_allowance(limits, job):
        return (False, candidate.usd_per_step, candidate.key)
    unpaid = has_cover(limits) and cover_rate(limits, candidate) is None
    return (unpaid, candidate.objective_per_step, candidate.key)


def open_commitment(limits: Limits, pool: int, slot: Slot) -> Commitment | None:
    """Return the commitment of the pool that is there in the slot; None for none, and beyond the horizon."""
    first = limits.commitments[pool]
    if not slot.order:
        return None
    return next((item for item in limits.commitments if item.scope == first.scope and is_open(item, slot)), None)


def buyable(limits: Limits, pool: int, slot: Slot) -> Usd:
    """Return the on-demand dollars that the pool's commitment buys in a slot."""
    commitment = open_commitment(limits, pool, slot)
    if commitment is None:
        return Usd(0)
    return Usd(int(commitment.usd_per_hour.nanos * exact_hours(slot.length) / commitment.paid_share))


def is_open(commitment: Commitment, slot: Slot) -> bool:
    """Return whether the slot lies wholly within the commitment's dates, which are edges of slots."""
    begun = commitment.start is None or commitment.start <= slot.start
    return begun and (commitment.until is None or slot.end <= commitment.until)


def exact_hours(length: timedelta) -> Fraction:
    """Return a length in hours, exact to the microsecond."""
    return Fraction(length // _MICRO, _HOUR // _MICRO)


def buyable_by_place(problem: PlacementProblem) -> Mapping[Place, Usd]:
    """Return what every pool buys in every slot, where that is anything."""
    limits = problem.limits
    scopes = [item.scope for item in limits.commitments]
    pools = [number for number, scope in enumerate(scopes) if scopes.index(scope) == number]
    found = {(pool, slot.index): buyable(limits, pool, slot) for pool in pools for slot in problem.slots}
    return {place: usd for place, usd in found.items() if usd.nanos > 0}


def most_covered(problem: PlacementProblem) -> Usd:
    """Return the most that all commitments could cover in the plan."""
    return Usd.total(buyable_by_place(problem).values()) if has_cover(problem.limits) else Usd(0)
