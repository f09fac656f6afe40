"""Checks of a plan against design note rules-of-the-plan: who may pause, move or leave out a job that runs.

The physics of the place where a job runs are read from the planner's candidates, as data; all else is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.document.plan import Line
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from tests.support.plan_view import HOUR, View
from tests.support.precedence_rules import fair_bands, runs_now
from tests.support.schedules import CandidateLike, closes, dates_of, reserved, slot_edges, standing
from tests.support.shared_limits import Holding, Shared, shared_things

RELATIVE = 1e-6


@dataclass(frozen=True)
class Staying:
    """A job that goes on where it runs, from now on without a break."""

    job: Job
    region: RegionId
    until: datetime
    holdings: tuple[Holding, ...]


def staying(view: View, job: Job) -> Staying | None:
    """Return the run of a job that goes on and is alone; None where its own rules do not let it."""
    if not runs_now(job) or job.steps_left == 0:
        return None
    if job.earliest_start is not None and job.earliest_start.at(view.now) > view.now:
        return None
    finder = CandidateFinder(view.book, view.limits, view.now, advisory=view.advisory)
    kept, _ = find_for_plan(finder, job)
    place = job.status.running if job.status is not None else None
    here = standing(place, kept)
    if not here:
        return None
    candidate = kept[min(here)]
    hours = job.steps_left / candidate.on_time_steps_per_hour
    ends = view.now + timedelta(hours=hours)
    paid = reserved(candidate, view.limits.reservations)
    if job.deadline is not None and ends > job.deadline.at(view.now):
        return None
    # Whole slots are held: near the end of a reservation or of the horizon the slots decide, which are not judged here.
    if any(item.start is not None or item.until is not None for item in paid):
        return None
    slots = slot_edges(
        view.now,
        view.plan.horizon_end,
        view.slot or HOUR,
        dates_of(*view.limits.reservations, *view.limits.maintenance, *view.limits.commitments),
    )
    until = min((edge for edge in slots if edge >= ends - timedelta(seconds=1)), default=None)
    if until is None or _closed(view, candidate, until):
        return None
    if job.data is not None and view.limits.egress_caps_gb:
        return None  # What others move may leave no room under a cap; caps are judged elsewhere.
    holdings = tuple(Holding(_offer(part.offer), part.machine, part.machines) for part in candidate.parts)
    return Staying(job, candidate.region, until, holdings)


def _closed(view: View, candidate: CandidateLike, until: datetime) -> bool:
    """Whether maintenance interrupts a run from now to then."""
    windows = [w for w in view.limits.maintenance if view.now < w.until and w.start < until]
    offers = [(_offer(part.offer), part.machine.family) for part in candidate.parts]
    return any(closes(w, offer[:4], family) for w in windows for offer, family in offers)


def _offer(offer: Any) -> tuple[str, str, str | None, str, str]:
    return (offer.cloud, offer.region, offer.zone, offer.instance_type, str(offer.market.value))


def check_precedence(view: View) -> Iterator[str]:
    """A running job that cannot resume goes on, unless others that cannot are in its way."""
    for job in view.jobs:
        stay = staying(view, job) if job.checkpoint is None else None
        runs = view.runs(job)
        if stay is None or (len(runs) == 1 and view.stays(job, runs[0])):
            continue
        budgeted = job.budget is not None or any(team.team == job.team for team in view.limits.teams)
        if budgeted or _makes_way(view, stay):
            continue
        yield f"{job.name}: does not go on where it runs, and no job that goes first needs its place"


def _makes_way(view: View, stay: Staying) -> bool:
    """Whether jobs that go first leave no room: in a limit at some moment of the stay, or in the region of a group."""
    if any(_asks_elsewhere(view, stay, mate) for mate in view.jobs):
        return True
    offers = {_offer(offer): offer.machines_cap for offer in view.book.offers}
    caps = {name: offers.get(name) for name in (holding.offer for holding in stay.holdings)}
    for thing in shared_things(view.limits, caps):
        needs = sum(thing.use(holding) for holding in stay.holdings)
        moments = {view.now, *(line.start for line in view.plan.lines if line.start < stay.until)}
        if needs and any(needs + _taken(view, stay.job, thing, at) > thing.amount + RELATIVE for at in moments):
            return True
    return False


def _asks_elsewhere(view: View, stay: Staying, mate: Job) -> bool:
    """Whether a job of the same group, placed in another region, may go first: all of a group are in one region."""
    if stay.job.group is None or mate.group != stay.job.group or mate.name == stay.job.name:
        return False
    lines = [line for line in view.plan.lines if line.job == mate.name]
    elsewhere = any((line.cloud, line.region) != (stay.region.cloud, stay.region.region) for line in lines)
    first = mate.priority > stay.job.priority or (runs_now(mate) and mate.priority == stay.job.priority)
    return elsewhere and (first or _goes_first(view, mate, stay.job))


def _taken(view: View, job: Job, thing: Shared, at: datetime) -> int:
    """Return the use by jobs that go first at a moment; the last slot of each counts whole."""
    edges = slot_edges(
        view.now,
        view.plan.horizon_end,
        view.slot or HOUR,
        dates_of(*view.limits.reservations, *view.limits.maintenance, *view.limits.commitments),
    )
    total = 0
    for line in view.plan.lines:
        until = min((edge for edge in edges if edge >= line.end), default=line.end)
        other = view.job(line.job)
        if other is not None and line.start <= at < until and _goes_first(view, other, job):
            total += thing.use(_holding(view, line))
    return total


def _goes_first(view: View, other: Job, job: Job) -> bool:
    if other.name == job.name:
        return False
    if view.is_late(other) != view.is_late(job):
        return view.is_late(job)  # Jobs in time go before late ones (design note rules-of-the-plan).
    if other.priority > job.priority:
        return True
    # Of running jobs of one priority those stay that fit together; one that cannot resume stays before all others.
    runs = view.runs(other)
    in_place = len(runs) == 1 and view.stays(other, runs[0])
    return in_place and (other.checkpoint is None or other.priority == job.priority)


def _holding(view: View, line: Line) -> Holding:
    machine = view.book.machine(line.cloud, line.instance_type)
    assert machine is not None
    return Holding((line.cloud, line.region, line.zone, line.instance_type, line.market), machine, line.machines)


def check_fair_share(view: View) -> Iterator[str]:
    """The standings of teams are those of the limits file, and their factor and band follow from them."""
    stated = view.limits.fair_share
    bands = fair_bands(view.limits, view.jobs)
    if {row.team: row.band for row in view.plan.fair_share} != bands:
        yield f"teams are in bands {[(row.team, row.band) for row in view.plan.fair_share]}, not {bands}"
    total = sum(row.recent_usd.dollars() for row in view.plan.fair_share)
    shares = sum(row.share for row in view.plan.fair_share)
    for row in view.plan.fair_share:
        if stated is not None and row.team in stated.recent_usd and row.recent_usd != stated.recent_usd[row.team]:
            yield f"team {row.team}: {row.recent_usd} used, the file says {stated.recent_usd[row.team]}"
        over = row.recent_usd.dollars() / total / (row.share / shares) if total else 0.0
        if abs(row.factor - 2.0**-over) > 1e-6:
            yield f"team {row.team}: factor {row.factor}, should be {2.0**-over}"


def check_preempted(view: View) -> Iterator[str]:
    """Compare each summary of a preemption with the lines of the plan."""
    summaries = {summary.job: summary for summary in view.plan.jobs}
    for job in view.jobs:
        told = summaries[job.name].preemption if job.name in summaries else None
        if told is None:
            continue
        runs = view.runs(job)
        if not runs_now(job) or (len(runs) == 1 and view.stays(job, runs[0])):
            yield f"{job.name}: is said to be {told.what}, and goes on"
        if (told.what == "left out") != (not runs) or (told.restart_usd is None) != (not runs):
            yield f"{job.name}: is said to be {told.what} at {told.restart_usd}"
        for name in told.by:
            other = view.job(name)
            if other is None or not _goes_first(view, other, job):
                yield f"{job.name}: is said to make way for {name}, which does not go first"
