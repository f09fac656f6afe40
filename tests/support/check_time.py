"""Checks of a plan against the clock: windows, runs, steps, and shared limits at every instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import combinations, pairwise

from pricing.money import UsdPerHour
from pricing.places import Market
from router.jobs.limits import Reservation
from router.jobs.spec import Job
from router.planning.document.plan import Line, LineFallback
from tests.support.plan_view import HOUR, Stretch, View, starting_time
from tests.support.schedules import closes, dates_of, slot_edges
from tests.support.shared_limits import Holding, OfferName, Shared, shared_things

MICRO = timedelta(microseconds=1)


def check_lateness(view: View) -> Iterator[str]:
    """A job ends after its deadline only where its file allows that, and the plan says by how much, to the lines."""
    for job in view.jobs:
        summary = next((each for each in view.plan.jobs if each.job == job.name), None)
        told = summary.late if summary is not None else None
        deadline = job.deadline.at(view.now) if job.deadline is not None else None
        if summary is not None and summary.deadline != deadline:
            yield f"{job.name}: its deadline is {deadline}, the plan says {summary.deadline}"
        if view.is_late(job) != (told is not None):
            yield f"{job.name}: ends after its deadline {view.is_late(job)}, the plan says {told}"
        if told is None or deadline is None or not view.is_late(job):
            continue
        if job.late != "allowed":
            yield f"{job.name}: is late, and its file does not allow that"
        finish = max(line.end for line in view.lines_of(job))
        if abs(told.by_hours - (finish - deadline) / HOUR) > 1e-6:
            yield f"{job.name}: late by {told.by_hours} h, its lines end {(finish - deadline) / HOUR} h after"
        if finish > told.planned_deadline + MICRO:
            yield f"{job.name}: ends at {finish}, planned until {told.planned_deadline}"
        slots = (told.planned_deadline - view.now) / view.slot if view.slot is not None else 0.0
        if abs(slots - round(slots)) > 1e-9:
            yield f"{job.name}: planned until {told.planned_deadline}, which is no edge of a slot"
        if not told.why:
            yield f"{job.name}: late without a reason"
        chance = summary.on_time_probability if summary is not None else None
        before = sum(max(0.0, (deadline - line.start) / HOUR) for line in view.lines_of(job))
        if chance is None or not 0 <= chance <= 1 or (before == 0 and chance > 0):
            yield f"{job.name}: {chance} sure to be in time, with {before} h before its deadline"


RELATIVE = 1e-6


def check_windows(view: View) -> Iterator[str]:
    """Lines lie within the plan and within what the job allows, and begin on slot edges."""
    plan = view.plan
    edges = _edges(view)
    for line in plan.lines:
        where = f"{line.job} {line.start:%d %H:%M}-{line.end:%d %H:%M}"
        job = view.job(line.job)
        if job is None:
            yield f"{where}: no such job"
            continue
        if not view.now <= line.start < line.end:
            yield f"{where}: ends before it starts, or starts before now"
        first = job.earliest_start.at(view.now) if job.earliest_start is not None else view.now
        if line.start < first:
            yield f"{where}: before its earliest start {first}"
        last = view.planned_deadline(job)
        if last is not None and line.end > last:
            yield f"{where}: after its deadline {last}"
        inside = line.end <= plan.horizon_end
        if (line.kind == "order") != inside or (not inside and line.start < plan.horizon_end):
            yield f"{where}: {line.kind} is not what the horizon makes it"
        if line.kind == "order" and line.share != 1.0:
            yield f"{where}: an order of a share {line.share}"
        if not 0 < line.share <= 1 + RELATIVE:
            yield f"{where}: share {line.share}"
        if edges and line.kind == "order" and line.start not in edges and line.start != first:
            yield f"{where}: does not begin on a slot edge"


def _edges(view: View) -> tuple[datetime, ...]:
    """Slot edges inside the horizon; none when the slot is not known."""
    if view.slot is None:
        return ()
    dates = dates_of(*view.limits.reservations, *view.limits.maintenance, *view.limits.commitments)
    return slot_edges(view.plan.horizon_start, view.plan.horizon_end, view.slot, dates)


def _held_until(line: Line, edges: Sequence[datetime]) -> datetime:
    """An order's last slot counts whole, however little of it is used."""
    if line.kind != "order":
        return line.end
    return min((edge for edge in edges if edge >= line.end), default=line.end)


def check_latest_start(view: View) -> Iterator[str]:
    """A job without a deadline begins its runs within its longest wait."""
    for job in view.jobs:
        if job.deadline is not None:
            continue
        first = job.earliest_start.at(view.now) if job.earliest_start is not None else view.now
        for run in view.runs(job):
            first = max(view.now, first)
            if run[0].head.start >= first + job.max_wait and run[0].head.start != first:
                yield f"{job.name}: a run starts at {run[0].head.start}, beyond its longest wait"


def _moments(lines: Sequence[Line], edges: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Between these nothing begins and nothing ends."""
    return list(pairwise(sorted({line.start for line in lines} | {_held_until(line, edges) for line in lines})))


def check_one_gang(view: View) -> Iterator[str]:
    """No job is in two places at once."""
    for job in view.jobs:
        heads = [stretch.head for stretch in view.stretches(job)]
        for begin, end, shares in _uses(view, heads, lambda _: 1):
            if shares > 1 + RELATIVE:
                yield f"{job.name}: {shares:.3f} gangs at once between {begin} and {end}"


def check_shared(view: View) -> Iterator[str]:
    """Caps, quotas and reservations: at every instant of the horizon, on average in the outlook."""
    offers = {(o.cloud, o.region, o.zone, o.instance_type, o.market.value): o.machines_cap for o in view.book.offers}
    held = [part for line in view.plan.lines for part in _held(line)]
    used: dict[OfferName, int | None] = {_name(part): offers.get(_name(part)) for part in held}
    things = shared_things(view.limits, used)
    for thing in things:
        try:
            takes = _takes(view, thing)
        except ValueError as error:
            yield str(error)
            continue
        lines = [line for line in view.plan.lines if takes[id(line)]]
        for begin, end, use in _uses(view, lines, lambda line, takes=takes: takes[id(line)]):  # type: ignore[misc]
            if use > thing.amount * (1 + RELATIVE) + RELATIVE:
                yield f"{thing.name}: {use:g} of {thing.amount} {thing.unit} between {begin} and {end}"
    paid = {thing.offer for thing in things if thing.offer is not None}
    for line in view.plan.lines:
        if line.market == Market.RESERVED and _name(line) not in paid:
            yield f"{line.job}: {_name(line)} is no reservation"


def _takes(view: View, thing: Shared) -> dict[int, int]:
    """Count what each line takes; a fallback that is kept free and takes more than its gang adds the difference."""
    takes = {id(line): thing.use(_holding(view, line)) for line in view.plan.lines}
    gangs: dict[tuple[str, datetime, datetime], int] = {}
    for line in view.plan.lines:
        key = (line.job, line.start, line.end)
        gangs[key] = gangs.get(key, 0) + takes[id(line)]
    for line in view.plan.lines:
        for behind in _held(line)[1:]:
            more = thing.use(_holding(view, behind)) - gangs[line.job, line.start, line.end]
            takes[id(line)] += max(0, more)
    return takes


def check_reservations(view: View) -> Iterator[str]:
    """A line on a reservation names it, lies within its dates and says what is known of its price; at no instant more
    machines of one are held than it has."""
    by_name = {f"reservation {item.name}": item for item in view.limits.reservations}
    held: dict[str, list[Line]] = {}
    for line in view.plan.lines:
        if line.market != Market.RESERVED:
            if line.reservation_cost:
                yield f"{line.job}: {_name(line)} is not reserved, and says {line.reservation_cost}"
            continue
        item = by_name.get(line.price_source)
        if item is None or _name(line)[:4] != (item.cloud, item.region, item.zone, item.instance_type):
            yield f"{line.job}: {line.price_source} is no reservation of {_name(line)}"
            continue
        held.setdefault(item.name, []).append(line)
        begins, ends = item.start or line.start, item.until or line.end
        if line.start < begins or line.end > ends:
            yield f"{line.job}: {line.start} to {line.end} is not within {begins} to {ends} of {item.name}"
        yield from _reserved_price(line, item)
    for item in view.limits.reservations:
        for begin, end, machines in _uses(view, held.get(item.name, ()), lambda line: line.machines):
            if machines > item.machines * (1 + RELATIVE) + RELATIVE:
                yield f"{item.name}: {machines:g} of {item.machines} machines between {begin} and {end}"


def _reserved_price(line: Line, item: Reservation) -> Iterator[str]:
    """Never zero without a word."""
    told = (line.reservation_cost, line.amortised_usd_per_hour)
    if item.sunk:
        expected: tuple[str, UsdPerHour | None] = ("sunk", UsdPerHour(0))
    elif item.usd_per_hour is None:
        expected = ("unknown", None)
    else:
        expected = ("amortised", item.usd_per_hour.times(line.machines))
    if told != expected:
        yield f"{line.job}: {item.name} is {expected}, the line says {told}"
    if expected[1] is None and line.usd_per_step is not None:
        yield f"{line.job}: a step on {item.name}, whose price nobody knows, is said to cost {line.usd_per_step}"


def _uses(
    view: View, lines: Sequence[Line], amount: Callable[[Line], int]
) -> Iterator[tuple[datetime, datetime, float]]:
    """Use at every instant of the horizon, and the least possible mean use over every stretch of the outlook.

    An outlook line holds a share of its slots on average, anywhere in them: only what cannot lie outside a stretch
    counts in it.
    """
    edges = _edges(view)
    orders = [line for line in lines if line.kind == "order"]
    for begin, end in _moments(orders, edges):
        alive = [x for x in orders if x.start <= begin and end <= _held_until(x, edges)]
        yield begin, end, float(sum(amount(line) for line in alive))
    outlook = [line for line in lines if line.kind != "order"]
    slots = outlook_edges(view)
    until = {id(line): min((edge for edge in slots if edge >= line.end), default=line.end) for line in outlook}
    marks = sorted({line.start for line in outlook} | set(until.values()))
    for begin, end in combinations(marks, 2):
        least = sum(amount(line) * _least_inside(line, until[id(line)], begin, end) for line in outlook)
        yield begin, end, least / ((end - begin) / HOUR)


def _least_inside(line: Line, until: datetime, begin: datetime, end: datetime) -> float:
    """Hours that a line must hold between two moments, wherever in its slots it holds the others."""
    held = line.share * ((line.end - line.start) / HOUR)
    inside = max(0.0, (min(until, end) - max(line.start, begin)) / HOUR)
    return max(0.0, held - ((until - line.start) / HOUR - inside))


def outlook_edges(view: View) -> tuple[datetime, ...]:
    """Every 6 h (UTC) up to seven days after now, then every midnight; deadlines and earliest starts."""
    now, start = view.now, view.plan.horizon_end
    last = max((line.end for line in view.plan.lines), default=start) + timedelta(days=1)
    edges = {moment.at(now) for job in view.jobs for moment in (job.deadline, job.earliest_start) if moment is not None}
    edges |= {moment for job in view.jobs if (moment := view.planned_deadline(job)) is not None}
    edges |= set(dates_of(*view.limits.reservations, *view.limits.maintenance, *view.limits.commitments))
    at = now.replace(hour=0, minute=0, second=0, microsecond=0)
    while at < last:
        if at.hour == 0 or at <= now + timedelta(days=7):
            edges.add(at)
        at += timedelta(hours=6)
    return tuple(sorted(edge for edge in edges if edge >= start))


def _held(line: Line) -> list[Line | LineFallback]:
    return [line] if line.fallback is None or not line.fallback.reserved else [line, line.fallback]


def _name(line: Line | LineFallback) -> OfferName:
    return (line.cloud, line.region, line.zone, line.instance_type, line.market)


def _holding(view: View, line: Line | LineFallback) -> Holding:
    machine = view.book.machine(line.cloud, line.instance_type)
    if machine is None:
        raise ValueError(f"unknown machine {line.instance_type}")
    return Holding(_name(line), machine, line.machines)


def check_runs(view: View) -> Iterator[str]:
    """Each run pays its start-up once, works no longer than it holds, and the steps are reached."""
    for job in view.jobs:
        runs = view.runs(job)
        if not runs:
            continue
        done, promised = 0.0, 0
        for run in runs:
            stays = view.stays(job, run)
            for position, stretch in enumerate(run):
                line = stretch.head
                due = position == 0 and not stays
                # Beyond the horizon a run that goes on may take a larger share of a slot, and starts that much.
                grows = position > 0 and line.kind == "outlook"
                if starting_time(job) and line.startup != due and not grows:
                    yield f"{job.name} {line.start}: start-up {line.startup}, should be {due}"
                yield from _check_work(job, stretch)
                yield from _check_cut_start(job, run[position:])
                done += stretch.worked_hours(starting_time(job)) * line.on_time_steps_per_hour
                promised += sum(part.steps for part in stretch.lines)
        whole = job.checkpoint is None and not (len(runs) == 1 and view.stays(job, runs[0]))
        needed = job.steps if whole else job.steps_left
        if done < needed * (1 - RELATIVE) - len(view.lines_of(job)) or promised < needed:
            yield f"{job.name}: {done:.1f} steps ({promised} in its lines) of {needed}"
        if job.checkpoint is None and len(runs) != 1:
            yield f"{job.name}: {len(runs)} runs of a job that cannot resume"


def _check_cut_start(job: Job, run: Sequence[Stretch]) -> Iterator[str]:
    """An order that is shorter than its start-up goes on beyond the horizon, and pays the rest of it there."""
    line = run[0].head
    left = starting_time(job) / HOUR - float(line.hours)
    if not line.startup or line.kind != "order" or left <= RELATIVE:
        return
    paid = run[1].startup_hours(starting_time(job)) if len(run) > 1 else 0.0
    if paid < left - RELATIVE - (1 / run[1].head.on_time_steps_per_hour if len(run) > 1 else 0.0):
        yield f"{job.name} {line.start}: {left:.6f} h of its start-up are left, {paid:.6f} h are paid after the horizon"


def _check_work(job: Job, stretch: Stretch) -> Iterator[str]:
    line = stretch.head
    startup = stretch.startup_hours(starting_time(job))
    worked = stretch.worked_hours(starting_time(job))
    slack = RELATIVE * (1 + float(stretch.held)) + 1 / line.on_time_steps_per_hour
    if not -slack <= startup <= starting_time(job) / HOUR + slack:
        yield f"{job.name} {line.start}: a start-up of {startup:.6f} h"
    if not -slack <= worked <= float(stretch.held) - startup + slack:
        yield (
            f"{job.name} {line.start}: works {worked:.6f} h after a start-up of {startup:.3f} h "
            f"in {float(stretch.held):.6f} h held"
        )
    steps = worked * line.on_time_steps_per_hour
    if abs(steps - sum(part.steps for part in stretch.lines)) > 1 + RELATIVE * steps:
        yield f"{job.name} {line.start}: says {line.steps} steps, works {steps:.1f}"
    if line.on_time_steps_per_hour > line.steps_per_hour * (1 + RELATIVE):
        yield f"{job.name} {line.start}: faster on time than expected"
    if not 0 < line.billed_share <= 1:
        yield f"{job.name} {line.start}: billed share {line.billed_share}"
    if any(part.hours != line.hours for part in stretch.lines):
        yield f"{job.name} {line.start}: core and rest are billed different hours"


def check_max_moves(view: View) -> Iterator[str]:
    """A job starts at most ``max_moves`` times beyond its first start; a job that runs now at most so often at all."""
    for job in view.jobs:
        if job.gang.max_moves is None:
            continue
        running = job.status is not None and job.status.running is not None
        starts = 0.0
        for run in view.runs(job):
            for position, stretch in enumerate(run):
                if stretch.head.kind != "order":
                    # A share of a slot takes a share of a start.
                    each = starting_time(job)
                    starts += stretch.startup_hours(each) / (each / HOUR) if each else 0.0
                elif position == 0 and not view.stays(job, run):
                    starts += 1
        most = job.gang.max_moves + (0 if running else 1)
        if starts > most + 1e-4:
            yield f"{job.name}: starts {starts:.4f} times, may {most} times"


def check_maintenance(view: View) -> Iterator[str]:
    """No line holds machines at a moment inside a window that closes them."""
    for line in view.plan.lines:
        machine = view.book.machine(line.cloud, line.instance_type)
        family = machine.family if machine else ""
        for window in view.limits.maintenance:
            if closes(window, _name(line)[:4], family) and line.start < window.until and window.start < line.end:
                yield f"{line.job}: holds {_name(line)} {line.start} to {line.end}, closed by {window.name}"
