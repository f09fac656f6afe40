"""Define the placement problem: jobs that can be placed, their candidates, slots, limits that can bind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise

from pricing.book import PriceBook
from pricing.offers import Offer
from pricing.places import Market
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.emissions import ExternalCosts
from router.planning.find.limit_kinds import SharedLimit
from router.planning.find.shared_limits import LimitUse

_SIX_HOURS = timedelta(hours=6)


_DAY = timedelta(days=1)


_FINE_OUTLOOK = timedelta(days=7)


@dataclass(frozen=True)
class Slot:
    """A half-open period ``[start, end)``.

    With ``order`` it is inside the horizon and held whole; else it belongs to the outlook and is held by a share.
    """

    index: int
    start: datetime
    end: datetime
    order: bool

    @property
    def length(self) -> timedelta:
        """Return end less start."""
        return self.end - self.start

    @cached_property
    def hours(self) -> float:
        """Return the length in hours."""
        return self.length / timedelta(hours=1)

    @cached_property
    def month(self) -> str:
        """Return the calendar month (UTC) of the start, ``2026-11``: egress accumulates by it."""
        return self.start.strftime("%Y-%m")


def make_slots(
    now: datetime, slot: timedelta, horizon: timedelta, edges: Iterable[datetime], last: datetime
) -> tuple[Slot, ...]:
    """Return slots from ``now`` to ``last`` (UTC).

    Slots are ``slot`` long up to ``now + horizon``, then end every 6 h (UTC) up to seven days, then at midnights.
    ``edges`` (dates of reservations and maintenance) are edges too, and so is each start of a month. Every slot lies
    wholly inside or outside the horizon.
    """
    end_of_orders = now + horizon
    edge_times = {now, min(end_of_orders, last), last}
    edge_times.update(edge for edge in edges if now < edge < last)
    edge_times.update(_steps(now, slot, min(end_of_orders, last)))
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    edge_times.update(m for m in _steps(midnight, _SIX_HOURS, min(now + _FINE_OUTLOOK, last)) if m > end_of_orders)
    edge_times.update(m for m in _steps(midnight, _DAY, last) if m > end_of_orders or m.day == 1)
    ordered = sorted(m for m in edge_times if now <= m <= last)
    return tuple(Slot(index, start, end, end <= end_of_orders) for index, (start, end) in enumerate(pairwise(ordered)))


def _steps(start: datetime, step: timedelta, end: datetime) -> Iterable[datetime]:
    mark = start
    while mark < end:
        yield mark
        mark += step


@dataclass(frozen=True)
class PlacementProblem:
    """Everything that the optimiser needs; ``jobs`` sorted by name, ``candidates`` those that survived dominance.

    ``all_candidates`` keeps the dominated ones too, as alternatives and fallbacks. ``held`` is what jobs outside the
    problem take, by limit and slot. Jobs in ``stays`` may only go on where they run
    (:mod:`router.planning.improve.stays`). ``bands`` are those of teams by recent use
    (:mod:`router.planning.document.fair_share`). Where jobs are planned again with later deadlines, ``late`` are those
    and ``in_time`` the ones placed before (:mod:`router.planning.improve.late_jobs`). ``committed`` is what jobs
    outside the problem use of committed spend, in dollars by pool and slot.
    """

    jobs: tuple[Job, ...]
    now: datetime
    book: PriceBook
    limits: Limits
    slots: tuple[Slot, ...]
    candidates: Mapping[str, tuple[Candidate, ...]]
    all_candidates: Mapping[str, tuple[Candidate, ...]]
    use: Mapping[tuple[str, str], LimitUse]
    shared: Mapping[str, SharedLimit]
    binding: frozenset[str]
    held: Mapping[tuple[str, int], float] = field(default_factory=dict)
    stays: frozenset[str] = frozenset()
    bands: Mapping[str, int] = field(default_factory=dict)
    in_time: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    committed: Mapping[tuple[int, int], float] = field(default_factory=dict)

    @cached_property
    def month(self) -> str:
        """Return the calendar month of ``now``, ``2026-11``."""
        return self.now.strftime("%Y-%m")

    @cached_property
    def external_costs(self) -> ExternalCosts:
        """Return what gangs cost others, as the limits weigh it."""
        return ExternalCosts(self.book, self.limits)

    @cached_property
    def job(self) -> Mapping[str, Job]:
        """Return the jobs by name."""
        return {job.name: job for job in self.jobs}

    def candidate(self, job: str, key: str) -> Candidate:
        """Return a job's candidate by its key, dominated or not; KeyError if there is none."""
        for c in self.all_candidates[job]:
            if c.key == key:
                return c
        raise KeyError(key)

    @cached_property
    def on_demand(self) -> Mapping[tuple[str, str, str], tuple[Offer, ...]]:
        """Return on-demand offers by cloud, region and instance type, at list price."""
        by_place: dict[tuple[str, str, str], list[Offer]] = {}
        for offer in self.book.offers:
            if offer.market is Market.ON_DEMAND:
                by_place.setdefault((offer.cloud, offer.region, offer.instance_type), []).append(offer)
        return {place: tuple(offers) for place, offers in by_place.items()}

    @cached_property
    def least_spot_usd(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """Return the least spot price in dollars an hour, by cloud and instance type, then by region."""
        prices: dict[tuple[str, str], dict[str, float]] = {}
        for offer in self.book.offers:
            if offer.market is Market.SPOT:
                usd, by_region = offer.usd_per_hour.dollars(), prices.setdefault((offer.cloud, offer.instance_type), {})
                by_region[offer.region] = min(by_region.get(offer.region, usd), usd)
        return prices

    @cached_property
    def _windows(self) -> dict[tuple[datetime, datetime | None], tuple[Slot, ...]]:
        """Return slots by window, as they were asked for so far."""
        return {}

    def window(self, job: Job) -> tuple[Slot, ...]:
        """Return the slots that the job may hold: from its earliest start to its deadline.

        A slot that one of them cuts is shorter for this job alone; limits count it as if the whole of it were held.
        """
        span = window(job, self.now)
        if span not in self._windows:
            self._windows[span] = clip_slots(self.slots, *span)
        return self._windows[span]

    def slots_for(self, job: Job, candidate: Candidate) -> tuple[Slot, ...]:
        """Return the slots of the job's window that the candidate can use.

        They lie within the dates of a reservation and outside maintenance; without a deadline, none is after the
        candidate's own longest wait and run.
        """
        slots = slots_within_dates(candidate, self.window(job))
        if job.deadline is not None:
            return slots
        steps = steps_to_do(job, running=candidate.running)
        last = last_use(job, (candidate,), self.now, steps)
        return tuple(s for s in slots if s.start < last)

    def may_start(self, job: Job, slot: Slot) -> bool:
        """Return whether a run may begin in the slot.

        Without a deadline that is only within ``max_wait``; the first slot is always allowed. A running job that may
        not move never starts again.
        """
        if most_starts(job) == 0:
            return False
        first = window(job, self.now)[0]
        return job.deadline is not None or slot.start == first or slot.start < first + job.max_wait


def free_starts(job: Job) -> int:
    """Return the number of starts that are no move: the first, unless the job is running now."""
    return 0 if job.status is not None and job.status.running is not None else 1


def most_starts(job: Job) -> int | None:
    """Return how many starts ``max_moves`` allows in one plan; None for no bound."""
    return None if job.gang.max_moves is None else free_starts(job) + job.gang.max_moves


def clip_slots(slots: Iterable[Slot], first: datetime, last: datetime | None) -> tuple[Slot, ...]:
    """Return the slots between two instants; those in which one of them lies are cut there and keep their index."""
    clipped = []
    for slot in slots:
        start, end = max(slot.start, first), slot.end if last is None else min(slot.end, last)
        if start < end:
            whole = (start, end) == (slot.start, slot.end)
            clipped.append(slot if whole else Slot(slot.index, start, end, slot.order))
    return tuple(clipped)


def slots_within_dates(candidate: Candidate, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Return the slots that lie wholly within the dates of the candidate's reservations, and outside maintenance."""
    if candidate.dates == (None, None) and not candidate.closed:
        return slots
    return tuple(slot for slot in slots if candidate.covers(slot.start, slot.end))


def window(job: Job, now: datetime) -> tuple[datetime, datetime | None]:
    """Return the earliest start (not before ``now``) and the deadline."""
    first = max(now, job.earliest_start.at(now)) if job.earliest_start else now
    return first, job.deadline.at(now) if job.deadline else None


def last_use(job: Job, candidates: tuple[Candidate, ...], now: datetime, steps: int) -> datetime:
    """Return the last instant that the job could use.

    That is its deadline, or the slowest candidate's end after the longest wait, with the pauses of maintenance.
    """
    first, last = window(job, now)
    if last is not None:
        return last
    slowest = max((c.reserved_hours(steps) for c in candidates), default=0.0)
    paused = max((_closed_after(c, first) for c in candidates), default=timedelta(0))
    return first + job.max_wait + timedelta(hours=slowest + 24) + paused


def _closed_after(candidate: Candidate, first: datetime) -> timedelta:
    """Return the sum of the candidate's maintenance windows after an instant."""
    windows = (window.until - max(window.start, first) for window in candidate.closed)
    return sum((length for length in windows if length > timedelta(0)), timedelta(0))
