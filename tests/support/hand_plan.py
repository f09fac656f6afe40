"""A plan written down from the brute force's optimum, without the planner: what the checker is tested on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import groupby

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.plan import JobSummary, Line, LineFallback, Plan, PlannedMove, Unplaced
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from tests.support.brute_force import Solution, moved_bytes
from tests.support.check_money import expected_moves
from tests.support.instances import Instance
from tests.support.nights import NO_INPUTS, NO_USAGE
from tests.support.plan_view import HOUR, View, exact_hours, starting_time
from tests.support.schedules import dates_of, fallback_usd_per_step, own_slots, slot_edges, standing
from tests.support.shipping import Need
from tests.support.tariff_oracle import Shipment, bill, meter_name

Run = tuple[int, datetime, datetime]


def hand_plan(instance: Instance, best: Solution) -> Plan:
    """The optimum as a plan whose bound is its own value."""
    edges = slot_edges(
        instance.now,
        instance.now + instance.horizon,
        instance.slot,
        dates_of(*instance.limits.reservations, *instance.limits.maintenance, *instance.limits.commitments),
    )
    jobs = {job.name: job for job in instance.jobs}
    lines: list[Line] = []
    threshold = 0
    for name, slots in best.choice:
        if slots is None:
            continue
        made, starts = _lines(instance, jobs[name], _runs(slots, own_slots(jobs[name], edges, instance.now)))
        lines += made
        threshold += starts * jobs[name].gang.min_saving.nanos
    empty = _plan(instance, jobs, best, lines, [], threshold)
    view = View(empty, instance.jobs, instance.book, instance.limits, False, None)
    return _plan(instance, jobs, best, lines, _moves(instance, view), threshold)


def _runs(slots: Sequence[int], own: Sequence[tuple[datetime, datetime] | None]) -> list[Run]:
    runs, at = [], 0
    for candidate, group in groupby(slots):
        length = len(list(group))
        first, last = own[at], own[at + length - 1]
        if candidate >= 0 and first is not None and last is not None:
            runs.append((candidate, first[0], last[1]))
        at += length
    return runs


def _lines(instance: Instance, job: Job, runs: Sequence[Run]) -> tuple[list[Line], int]:
    finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=False)
    kept, _ = find_for_plan(finder, job)
    place = job.status.running if job.status is not None else None
    here = standing(place, kept)
    stays = [start == instance.now and c in here for c, start, _ in runs]
    paid = len(runs) - sum(stays)
    whole = job.checkpoint is None and not any(stays)
    left = float(job.steps if whole else job.steps_left)
    worked = [0.0] * len(runs)
    for r in sorted(range(len(runs)), key=lambda r: _dearness(kept[runs[r][0]])):
        candidate, start, end = runs[r]
        room = (end - start) / HOUR - (0.0 if stays[r] else starting_time(job) / HOUR)
        rate = kept[candidate].on_time_steps_per_hour
        worked[r] = min(room, left / rate)
        left -= worked[r] * rate
    lines: list[Line] = []
    for r, (candidate, start, end) in enumerate(runs):
        lines += _run_lines(job, kept[candidate], start, end, worked[r], startup=not stays[r])
    return lines, paid if place is not None else max(0, len(runs) - 1)


def _dearness(candidate: Candidate) -> float:
    own = candidate.usd_per_hour.dollars() * candidate.billed_share / candidate.steps_per_hour
    return own + fallback_usd_per_step(candidate)


def _fallback(candidate: Candidate, worked: float) -> LineFallback | None:
    """The fallback of a guarded run that works so many hours."""
    behind, guard = candidate.fallback, candidate.guard
    if behind is None or guard is None:
        return None
    part, hours = behind.parts[-1], Fraction(worked * guard.hours_per_reserved)
    moves = candidate.fallback_moves.nanos * worked
    return LineFallback(
        cloud=part.offer.cloud,
        region=part.offer.region,
        zone=part.offer.zone,
        instance_type=part.offer.instance_type,
        market=part.offer.market.value,
        machines=behind.machines,
        accelerator=behind.accelerator,
        accelerators=behind.accelerators,
        usd_per_hour=behind.usd_per_hour,
        max_usd_per_hour=behind.usd_per_hour,
        hours=hours,
        cost_usd=Usd(round(behind.usd_per_hour.nanos * hours) + round(moves)),
        probability=guard.probability,
        refusal_probability=guard.refusal_probability,
        reserved=guard.reserves_fallback,
    )


def _run_lines(
    job: Job, candidate: Candidate, start: datetime, end: datetime, worked: float, *, startup: bool
) -> list[Line]:
    paid = exact_hours(starting_time(job)) if startup else Fraction(0)
    share = candidate.billed_share * candidate.on_time_steps_per_hour / candidate.steps_per_hour
    hours = paid + Fraction(worked * share)
    lines = []
    for position, part in enumerate(candidate.parts):
        price = part.offer.usd_per_hour.times(part.machines)
        behind = _fallback(candidate, worked) if position == len(candidate.parts) - 1 else None
        lines.append(
            Line(
                job=job.name,
                gang=f"{job.name}/{candidate.key}",
                kind="order",
                provisionable=True,
                max_usd_per_hour=price,
                cloud=part.offer.cloud,
                region=part.offer.region,
                zone=part.offer.zone,
                instance_type=part.offer.instance_type,
                market=part.offer.market.value,
                machines=part.machines,
                accelerator=part.machine.accelerator,
                accelerators=part.machines * part.machine.accelerator_count,
                start=start,
                end=end,
                hours=hours,
                share=1.0,
                startup=startup,
                usd_per_hour=price,
                amortised_usd_per_hour=None
                if part.listing.amortised is None
                else part.listing.amortised.times(part.machines),
                steps=0 if position else -int(-worked * candidate.on_time_steps_per_hour // 1),
                steps_per_hour=candidate.steps_per_hour,
                on_time_steps_per_hour=candidate.on_time_steps_per_hour,
                billed_share=candidate.billed_share,
                usd_per_step=None,
                cost_usd=Usd(round(price.nanos * hours) + (0 if behind is None else behind.cost_usd.nanos)),
                fallback=behind,
                price_as_of="2026-11-01",
                price_source=part.offer.source,
                weak="",
                reservation_cost=part.listing.cost or "",
            )
        )
    return lines


def _moves(instance: Instance, view: View) -> list[PlannedMove]:
    wanted = [(job, month, to, need) for job in instance.jobs for month, to, need in expected_moves(view, job)]
    groups: dict[tuple[str, str], list[tuple[Job, str, Need]]] = {}
    shipments = []
    for job, month, to, need in wanted:
        assert need.tariff is not None
        shipments.append(Shipment(need.tariff, month, need.volume))
        groups.setdefault((month, meter_name(need.tariff)), []).append((job, str(to), need))
    bills = bill(
        shipments,
        tariffs=instance.book.tariffs,
        this_month=instance.now.strftime("%Y-%m"),
        moved_bytes=moved_bytes(instance.limits),
    )
    moves = []
    for (month, meter), items in sorted(groups.items(), key=lambda group: group[0]):
        parts = Usd(round(bills[month, meter])).split([need.volume for _, _, need in items])
        moves += [
            PlannedMove(job.name, need.what, str(need.source), place, need.gib, month, meter, cost)
            for (job, place, need), cost in zip(items, parts, strict=True)
        ]
    return moves


def _plan(
    instance: Instance,
    jobs: dict[str, Job],
    best: Solution,
    lines: list[Line],
    moves: list[PlannedMove],
    threshold: int,
) -> Plan:
    total = Usd.total([line.cost_usd for line in lines] + [move.cost_usd for move in moves])
    out = [jobs[name] for name, slots in best.choice if slots is None]
    return Plan(
        as_of=instance.now,
        expires_at=instance.now + timedelta(hours=1),
        book_digest=instance.book.digest,
        book_as_of=instance.book.as_of,
        horizon_start=instance.now,
        horizon_end=instance.now + instance.horizon,
        status="optimal",
        stage_one_proven=True,
        time_limit_hit=False,
        cost_usd=total,
        orders_usd=total,
        threshold_usd=Usd(threshold),
        bound_usd=total + Usd(threshold),
        gap=0.0,
        gap_asked=0.005,
        solver="by hand",
        lines=tuple(lines),
        moves=tuple(moves),
        unplaced=tuple(Unplaced(job.name, job.team, job.priority, "no room", ()) for job in out),
        shadow_prices=(),
        jobs=tuple(_summary(job, lines, moves, instance.now) for job in instance.jobs),
        inputs=NO_INPUTS,
        usage=NO_USAGE,
    )


def _summary(job: Job, lines: list[Line], moves: list[PlannedMove], now: datetime) -> JobSummary:
    own = [line.cost_usd for line in lines if line.job == job.name]
    own += [move.cost_usd for move in moves if move.job == job.name]
    return JobSummary(
        job=job.name,
        job_digest=job.digest,
        team=job.team,
        project=None,
        cost_usd=Usd.total(own),
        usd_per_step=None,
        steps=job.steps_left,
        start=None,
        finish=None,
        deadline=None if job.deadline is None else job.deadline.at(now),
        confidence=job.confidence,
        on_time_probability=None,
        runner_up=None,
        alternatives=(),
        constraint_costs=(),
        dropped=(),
        notes=(),
    )
