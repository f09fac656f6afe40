"""Every way to run one job over a handful of slots: the enumeration under the brute force (placement-program.md).

Shares no code with the program. A pattern gives each slot a candidate or nothing; all patterns are
made and judged, as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pricing.book import PriceBook
from pricing.places import RegionId
from router.jobs.limits import Commitment, Limits, Maintenance, Reservation
from router.jobs.spec import Job, Placement
from tests.support.commitment_oracle import rates, used_by_slot
from tests.support.shipping import Need, checkpoint_need, needs_into

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
TOLERANCE = 1e-9


class PartLike(Protocol):
    """What is read of a part of a candidate."""

    @property
    def offer(self) -> Any: ...
    @property
    def machine(self) -> Any: ...
    @property
    def machines(self) -> int: ...


class CandidateLike(Protocol):
    """What is read of a candidate: its physics and its place, nothing of the search."""

    @property
    def key(self) -> str: ...
    @property
    def region(self) -> RegionId: ...
    @property
    def parts(self) -> Sequence[Any]: ...
    @property
    def usd_per_hour(self) -> Any: ...
    @property
    def steps_per_hour(self) -> float: ...
    @property
    def on_time_steps_per_hour(self) -> float: ...
    @property
    def billed_share(self) -> float: ...
    @property
    def startup(self) -> timedelta: ...
    @property
    def fallback(self) -> Any: ...
    @property
    def fallback_moves(self) -> Any: ...
    @property
    def guard(self) -> Any: ...


def fallback_hours_per_step(candidate: CandidateLike) -> float:
    """Hours of the fallback expected for a step of a guarded run; 0 without one."""
    if candidate.fallback is None:
        return 0.0
    return float(candidate.guard.hours_per_reserved / candidate.on_time_steps_per_hour)


def fallback_usd_per_step(candidate: CandidateLike) -> float:
    """Dollars that the fallback of a guarded run is expected to cost for a step, moving there included."""
    if candidate.fallback is None:
        return 0.0
    moves = candidate.fallback_moves.dollars() / candidate.on_time_steps_per_hour
    return float(fallback_hours_per_step(candidate) * candidate.fallback.usd_per_hour.dollars() + moves)


@dataclass(frozen=True)
class Ways:
    """Feasible patterns of one job, a row each; what shared limits and other jobs do to them comes later.

    ``slots`` [n, t]: index of the candidate, -1 idle. ``cost`` compute dollars; ``threshold`` dollars on top, which
    nobody pays: those of starts beyond the first, and of carbon; ``arrivals`` index into ``shipments`` (which needs, in
    which months); ``committed`` [n, commitments x slots]: on-demand dollars that could be covered.
    """

    slots: Ints
    cost: Floats
    threshold: Floats
    arrivals: Ints
    shipments: tuple[tuple[tuple[str, Need, RegionId], ...], ...]
    committed: Floats


def slot_edges(now: datetime, end: datetime, slot: timedelta, dates: Iterable[datetime] = ()) -> tuple[datetime, ...]:
    """Edges in the horizon: every full slot from now, its end, month starts, and ``dates`` of reservations."""
    edges, at = {now, end, *(moment for moment in dates if now < moment < end)}, now
    while at < end:
        edges.add(at)
        at += slot
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while month < end:
        month = (month + timedelta(days=32)).replace(day=1)
        if month < end:
            edges.add(month)
    return tuple(sorted(edges))


def own_slots(job: Job, edges: Sequence[datetime], now: datetime) -> list[tuple[datetime, datetime] | None]:
    """Each slot as the job may hold it, cut at its earliest start and its deadline; None where nothing is left."""
    first = job.earliest_start.at(now) if job.earliest_start is not None else now
    last = job.deadline.at(now) if job.deadline is not None else edges[-1]
    own = [(max(first, a), min(last, b)) for a, b in pairwise(edges)]
    return [(a, b) if a < b else None for a, b in own]


def standing(placement: Placement | None, candidates: Sequence[CandidateLike]) -> set[int]:
    """Indices of the candidates on which a running job stands: those of its zone, else those without one."""
    if placement is None:
        return set()
    fitting = {c: zone for c, candidate in enumerate(candidates) if (zone := _fit(placement, candidate))}
    return {c for c, zone in fitting.items() if zone == max(fitting.values())}


def held_by_type(placement: Placement) -> dict[str, int]:
    """Accelerators that a running job holds, by machine type."""
    second = placement.mixed_with
    held = {placement.instance_type: placement.accelerators - (second.accelerators if second is not None else 0)}
    return held if second is None else {**held, second.instance_type: second.accelerators}


def _fit(placement: Placement, candidate: CandidateLike) -> int:
    """2 where the zone is the same too, 1 where one of the two names none, 0 elsewhere."""
    offer = candidate.parts[-1].offer  # of a core and a rest the spot rest: it names the market
    types = {part.offer.instance_type for part in candidate.parts}
    by_type = {
        name: sum(p.machines * p.machine.accelerator_count for p in candidate.parts if p.offer.instance_type == name)
        for name in types
    }
    same = (
        (placement.cloud, placement.region) == (offer.cloud, offer.region)
        and placement.market == offer.market
        and by_type == held_by_type(placement)
    )
    if not same:
        return 0
    if placement.zone == offer.zone:
        return 2
    return int(None in (placement.zone, offer.zone))


def enumerate_ways(
    job: Job,
    candidates: Sequence[CandidateLike],
    edges: Sequence[datetime],
    now: datetime,
    book: PriceBook,
    limits: Limits,
    carbon: Sequence[float] | None = None,
    *,
    fallback_carbon: Sequence[float] | None = None,
    budgeted: bool = False,
) -> Ways:
    """All patterns that respect the job's own rules, the dates of reservations and maintenance, each at its least
    cost.

    ``carbon``: dollars an hour that the emissions of each candidate count, ``fallback_carbon`` dollars a step that
    those of its fallback do. A job that a budget holds (its own or its
    team's, ``budgeted``) fills the time of what is cheapest in money first, any other job that of machines that a
    commitment matches, then what is cheapest with carbon.
    """
    extra = np.zeros(len(candidates)) if carbon is None else np.array(carbon)
    own = own_slots(job, edges, now)
    lengths = np.array([0.0 if slot is None else (slot[1] - slot[0]) / timedelta(hours=1) for slot in own])
    slots = _patterns(len(candidates), [slot is not None for slot in own])
    slots = slots[~_outside(slots, candidates, edges, limits)]
    starts = _starts(slots)
    held = np.stack([((slots == c) * lengths).sum(axis=1) for c in range(len(candidates))], axis=1)
    runs = np.stack([(starts == c).sum(axis=1) for c in range(len(candidates))], axis=1)
    status = job.status
    placement = status.running if status is not None else None
    staying = np.zeros(len(slots), dtype=bool)
    paid = runs.copy()
    goes_on = own[0] is not None and own[0][0] == now
    for c in standing(placement, candidates) if goes_on else ():
        stays = slots[:, 0] == c
        paid[stays, c] -= 1
        staying |= stays
    needed = np.full(len(slots), float(job.steps_left))
    if job.checkpoint is None:
        needed[~staying] = float(job.steps)
    by_money = budgeted or job.budget is not None
    others = np.array([not any(rates(candidate, limits.commitments)) for candidate in candidates])
    price = np.array([candidate.usd_per_hour.dollars() for candidate in candidates])
    billed = np.array([c.billed_share / c.steps_per_hour for c in candidates])
    behind = np.array([fallback_usd_per_step(c) for c in candidates])
    if carbon is not None and not by_money:
        behind = behind + np.array(fallback_carbon or [0.0] * len(candidates))
    each = (price if by_money else price + extra) * billed + behind
    order = np.lexsort((each, np.zeros_like(others) if by_money else others))
    worth = np.array(fallback_carbon or [0.0] * len(candidates))
    cost, emitted, enough, used = _cheapest(candidates, held, paid, needed, extra, worth, order)
    threshold = emitted + job.gang.min_saving.dollars() * np.maximum(
        0, paid.sum(axis=1) if placement is not None else runs.sum(axis=1) - 1
    )
    good = enough & _may_start(job, starts, edges, now)
    if job.gang.max_moves is not None:
        moves = paid.sum(axis=1) if placement is not None else runs.sum(axis=1) - 1
        good &= moves <= job.gang.max_moves
    if job.checkpoint is None:
        good &= runs.sum(axis=1) == 1
    regions = sorted({candidate.region for candidate in candidates})
    place = np.array([regions.index(candidate.region) for candidate in candidates] + [-1])[slots]
    good &= sum(((place == r).any(axis=1) for r in range(len(regions))), np.zeros(len(slots), int)) <= (
        job.gang.regions
    )
    arrivals, shipments = _arrivals(job, place, regions, edges, book)
    good &= arrivals >= 0
    if job.checkpoint is not None and job.gang.regions > 1:
        good &= _passable(job, place, regions, book, limits)
    top = np.array([sum(need.top_dollars for _, need, _ in needs) for needs in shipments] or [0.0])
    if job.budget is not None:
        good &= cost + top[np.maximum(arrivals, 0)] <= job.budget.dollars() + TOLERANCE
    slots, used = slots[good], used[good]
    committed = used_by_slot(slots, lengths, used, candidates, limits.commitments)
    return Ways(slots, cost[good], threshold[good], arrivals[good], shipments, committed)


def dates_of(*items: Reservation | Maintenance | Commitment) -> list[datetime]:
    """When reservations, maintenance and commitments begin and end."""
    return [edge for item in items for edge in (item.start, item.until) if edge is not None]


def closes(window: Maintenance, place: tuple[str, str, str | None, str], family: str) -> bool:
    """Whether the window forbids machines of this cloud, region, zone, type and family."""
    wanted = (window.cloud, window.region, window.zone, window.instance_type)
    named = all(wish is None or wish == name for wish, name in zip(wanted, place, strict=True))
    return named and (not window.family or family in window.family)


def reserved(candidate: CandidateLike, reservations: Sequence[Reservation]) -> list[Reservation]:
    """The reservations on which a candidate is, by the names that its offers give as their source."""
    sources = {part.offer.source for part in candidate.parts}
    return [item for item in reservations if f"reservation {item.name}" in sources]


def _outside(
    slots: Ints, candidates: Sequence[CandidateLike], edges: Sequence[datetime], limits: Limits
) -> npt.NDArray[np.bool_]:
    """Patterns that hold a reservation in a slot that does not lie wholly within its dates, or what is closed."""
    wrong = np.zeros(len(slots), dtype=bool)
    for c, candidate in enumerate(candidates):
        items = reserved(candidate, limits.reservations)
        windows = [w for w in limits.maintenance for part in candidate.parts if closes(w, *_place_and_family(part))]
        for t, (begin, end) in enumerate(pairwise(edges)):
            dated = all(begin >= (item.start or begin) and end <= (item.until or end) for item in items)
            if not dated or any(begin < w.until and w.start < end for w in windows):
                wrong |= slots[:, t] == c
    return wrong


def _place_and_family(part: PartLike) -> tuple[tuple[str, str, str | None, str], str]:
    offer = part.offer
    return (offer.cloud, offer.region, offer.zone, offer.instance_type), part.machine.family


def _patterns(candidates: int, opened: Sequence[bool]) -> Ints:
    choices = [np.arange(-1, candidates) if is_open else np.array([-1]) for is_open in opened]
    grid = np.meshgrid(*choices, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1)


def _starts(slots: Ints) -> Ints:
    """[n, t]: the candidate on which a run begins in that slot, -1 where none begins."""
    before = np.concatenate([np.full((len(slots), 1), -1), slots[:, :-1]], axis=1)
    return np.where(slots != before, slots, -1)


def _may_start(job: Job, starts: Ints, edges: Sequence[datetime], now: datetime) -> npt.NDArray[np.bool_]:
    if job.deadline is not None:
        return np.ones(len(starts), dtype=bool)
    first = job.earliest_start.at(now) if job.earliest_start is not None else now
    first = max(now, first)
    begins = [max(edge, first) for edge in edges[:-1]]
    late = np.array([begin >= first + job.max_wait and begin != first for begin in begins])
    result: npt.NDArray[np.bool_] = ~((starts >= 0) & late).any(axis=1)
    return result


def _cheapest(
    candidates: Sequence[CandidateLike],
    held: Floats,
    paid: Ints,
    needed: Floats,
    carbon: Floats,
    fallback_carbon: Floats,
    order: Ints,
) -> tuple[Floats, Floats, npt.NDArray[np.bool_], Floats]:
    """Least cost of reaching the steps in the time held, the dollars of its carbon, whether that is enough, and the
    hours used of each candidate."""
    startup = np.array([candidate.startup / timedelta(hours=1) for candidate in candidates])
    price = np.array([candidate.usd_per_hour.dollars() for candidate in candidates])
    room = held - startup * paid
    cost = (paid * startup * price).sum(axis=1)
    emitted = (paid * startup * carbon).sum(axis=1)
    possible = (room >= -TOLERANCE).all(axis=1)
    left = needed.copy()
    used = paid * startup
    billed = np.array([c.billed_share / c.steps_per_hour for c in candidates])
    for c in order:
        rate = candidates[c].on_time_steps_per_hour
        steps = np.minimum(left, np.maximum(0.0, room[:, c]) * rate)
        cost += steps * (price[c] * billed[c] + fallback_usd_per_step(candidates[c]))
        emitted += steps * (carbon[c] * billed[c] + fallback_carbon[c])
        left -= steps
        used[:, c] += steps / rate
    return cost, emitted, possible & (left <= TOLERANCE * needed), used


def _arrivals(
    job: Job, place: Ints, regions: Sequence[RegionId], edges: Sequence[datetime], book: PriceBook
) -> tuple[Ints, tuple[tuple[tuple[str, Need, RegionId], ...], ...]]:
    """For each pattern what must be moved in which month; -1 where that is unknown or above the job's cap."""
    first = np.stack(
        [np.where((hit := place == r).any(axis=1), hit.argmax(axis=1), -1) for r in range(len(regions))],
        axis=1,
    )
    months = np.array([edge.strftime("%Y-%m") for edge in edges[:-1]] + [""])[first]
    keys, inverse = np.unique(months, axis=0, return_inverse=True)
    shipments: list[tuple[tuple[str, Need, RegionId], ...]] = []
    index = np.zeros(len(keys), dtype=np.int64)
    for k, key in enumerate(keys):
        needs = [
            (str(month), need, region)
            for month, region in zip(key, regions, strict=True)
            if month
            for need in needs_into(job, region, book)
        ]
        allowed = all(need.tariff is not None for _, need, _ in needs) and within_cap(job, [n for _, n, _ in needs])
        index[k] = len(shipments) if allowed else -1
        if allowed:
            shipments.append(tuple(needs))
    return index[inverse.ravel()], tuple(shipments)


def _passable(
    job: Job, place: Ints, regions: Sequence[RegionId], book: PriceBook, limits: Limits
) -> npt.NDArray[np.bool_]:
    """Regions between which a tariff is unknown, one way or the other, are not combined; nor are two clouds of which
    one has a cap on egress.

    What taking the checkpoint along costs is not counted: where there are several regions it has next to no size.
    """
    good = np.ones(len(place), dtype=bool)
    for (a, here), (b, there) in combinations(enumerate(regions), 2):
        ways = (checkpoint_need(job, here, there, book), checkpoint_need(job, there, here, book))
        capped = here.cloud != there.cloud and {here.cloud, there.cloud} & limits.egress_caps_gb.keys()
        if capped or any(way.tariff is None for way in ways):
            good &= ~((place == a).any(axis=1) & (place == b).any(axis=1))
    return good


def within_cap(job: Job, needs: Sequence[Need]) -> bool:
    """Whether all moves of a job together respect its egress cap."""
    cap = job.data.egress_cap if job.data is not None else None
    if cap is None:
        return True
    if cap.gib is not None and sum(need.gib for need in needs) > cap.gib * (1 + TOLERANCE):
        return False
    return cap.usd is None or sum(need.top_dollars for need in needs) <= cap.usd.dollars() + TOLERANCE
