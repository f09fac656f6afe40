"""Rule out the gangs that a job's derived type forbids, where others serve the job. Pure.

Design note costs-and-estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pricing.book import PriceBook
from pricing.money import Usd
from router.jobs.gang import GangOption
from router.jobs.spec import Job
from router.planning.find.allowances import own_allowance
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.dropped_listings import DroppedListing
from router.planning.find.placement_rule import placement_refusal
from router.planning.find.placement_type import JobPlacementType, TimedGang, find_placement_type

_HOUR = timedelta(hours=1)
Found = tuple[tuple[Candidate, ...], tuple[DroppedListing, ...]]


def placement_type_of(
    finder: CandidateFinder, job: Job, candidates: Sequence[Candidate], dropped: Sequence[DroppedListing]
) -> JobPlacementType:
    """Return the type of a job by its candidates and what was dropped, of gangs that can be ordered."""
    gangs = _timed_gangs(job, candidates, dropped, advisory=finder.orders_advisory)
    return find_placement_type(finder.with_learned_speeds(job), gangs)


def planned_type(
    finder: CandidateFinder, job: Job, candidates: Sequence[Candidate], dropped: Sequence[DroppedListing]
) -> JobPlacementType:
    """Return the type of a job as a plan with these candidates used it, which says so where none kept to it."""
    kind = placement_type_of(finder, job, candidates, dropped)
    if kind.basis == "stated" or not kind.used:
        return kind
    typed = job.model_copy(update={"placement": kind.type})
    if all(c.running or _refusal(typed, c, finder.book) is None for c in candidates):
        return kind
    return replace(kind, used=False, why=f"{kind.why}; no gang that keeps to it serves the job alone")


def _timed_gangs(
    job: Job, candidates: Sequence[Candidate], dropped: Sequence[DroppedListing], *, advisory: bool
) -> Iterator[TimedGang]:
    """Yield the gangs that the job's rules allow, those that cannot be timed or do not fit included.

    Gangs that a derived type ruled out count as before: the type must not depend on what follows from it.
    """
    for c in candidates:
        for part in c.parts:
            if advisory or c.provisionable:
                yield TimedGang(part.machine, c.accelerators, part.listing.accelerator, c.steps_per_hour)
    codes = ("speed",) if job.placement is not None else ("speed", "placement")
    for drop in dropped:
        if drop.code in codes and (advisory or drop.listing.offer.provisionable):
            yield TimedGang(drop.listing.machine, drop.accelerators, drop.listing.accelerator, None)


def find_for_plan(
    finder: CandidateFinder,
    job: Job,
    *,
    most_spot: int | None = None,
    below: Usd | None = None,
    kind: JobPlacementType | None = None,
) -> Found:
    """Return what the finder finds, without the gangs that the job's derived type forbids.

    They stay where the type is advice, and where no other gang serves the job within its deadline and budget. A gang on
    which the job runs now stays in any case: a type that nobody stated moves nothing. With ``below`` spot gangs that
    cost as much are left out, where the type is known without them: ``kind``, or as the job states it.
    """
    if job.placement is not None or job.workload.transformer is None:
        return finder.find(job, most_spot=most_spot, below=below)
    below = None if kind is None else below
    candidates, dropped = finder.find(job, most_spot=most_spot, below=below)
    kind = kind or placement_type_of(finder, job, candidates, dropped)
    if not kind.used:
        return candidates, dropped
    typed = job.model_copy(update={"placement": kind.type})
    refusals = {c.key: _refusal(typed, c, finder.book) for c in candidates}
    permitted = [c for c in candidates if refusals[c.key] is None and (finder.orders_advisory or c.provisionable)]
    if not any(_serves(job, c, finder.now) for c in permitted):
        # A dearer gang may be of the type and serve the job.
        return (candidates, dropped) if below is None else find_for_plan(finder, job, most_spot=most_spot, kind=kind)
    kept = tuple(c for c in candidates if c.running or refusals[c.key] is None)
    lost = [
        DroppedListing("placement", f"derived {reason}", part.listing, c.accelerators)
        for c in candidates
        if not c.running and (reason := refusals[c.key]) is not None
        for part in c.parts
    ]
    return kept, (*dropped, *lost)


def _refusal(typed: Job, candidate: Candidate, book: PriceBook) -> str | None:
    """Return why the job's type forbids a gang; of two machine types each must do."""
    by_type: dict[str, list[int]] = {}
    for at, part in enumerate(candidate.parts):
        by_type.setdefault(part.offer.instance_type, []).append(at)
    for own in by_type.values():
        parts = [candidate.parts[at] for at in own]
        option = GangOption(accelerator=parts[0].machine.accelerator, count=candidate.accelerators)
        # A core and its rest lie in one zone, and are of one listing in the eyes of the rule.
        zones = list({part.offer.zone: part.listing for part in parts}.values())
        refused = placement_refusal(typed, option, zones, book)
        if refused is not None:
            return refused.reason
    return None


def _serves(job: Job, candidate: Candidate, now: datetime) -> bool:
    """Return whether the gang alone does the job by its deadline and within its budget."""
    steps = steps_to_do(job, running=candidate.running)
    allowed = own_allowance(job)
    if allowed is not None and candidate.expected_usd(steps) > allowed.dollars():
        return False
    if job.deadline is None:
        return True
    first = now if job.earliest_start is None else max(now, job.earliest_start.at(now))
    hours = (job.deadline.at(now) - first) / _HOUR
    return candidate.reserved_hours(steps) - (candidate.startup_hours if candidate.running else 0.0) <= hours


def rules_by_placement(job: Job, dropped: Iterable[DroppedListing]) -> bool:
    """Return whether the job's placement rules gangs out or may: stated, or derived by what a plan dropped."""
    if job.placement is not None:
        return job.placement not in ("none", "compute")
    return job.workload.transformer is not None and any(drop.code == "placement" for drop in dropped)
