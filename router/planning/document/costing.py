"""Compute exact money for a schedule: lines, moves through the month's tiers, totals. No float enters an amount."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from pricing.egress import Tariff, compute_meter_costs
from pricing.money import ZERO, Usd, UsdPerHour, divide_half_even
from pricing.offers import Offer
from pricing.places import Market, RegionId
from router.jobs.spec import Job
from router.planning.document.external_costs import external_of_line
from router.planning.document.plan import Capacity, Line, LineFallback, PlannedMove
from router.planning.find.candidate import GangPart
from router.planning.find.limit_kinds import use_by_machine
from router.planning.find.transfers import Transfer, checkpoint_home, checkpoint_transfer
from router.planning.problem.egress_to_date import allowance_left, already_moved
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun

_MICRO = timedelta(microseconds=1)


def lines_of(problem: PlacementProblem, runs: Sequence[ScheduledRun]) -> tuple[Line, ...]:
    """Return one line for each run and part, in time order; each cost is rate x billed time, rounded once.

    What the fallback of a guarded run is expected to cost stands on the line of its last part.
    """
    lines: list[Line] = []
    for number, run in enumerate(runs, start=1):
        lines += [
            _line(problem, run, part, f"{run.job}/{number}", index) for index, part in enumerate(run.candidate.parts)
        ]
    return tuple(lines)


def _line(problem: PlacementProblem, run: ScheduledRun, part: GangPart, gang: str, index: int) -> Line:
    offer, c = part.offer, run.candidate
    fallback = _fallback_of(problem, run) if index == len(c.parts) - 1 else None
    extra = ZERO if fallback is None else fallback.cost_usd
    rate = offer.usd_per_hour.times(part.machines)
    billed = run.billed
    each = part.listing.amortised
    amortised = None if each is None else each.times(part.machines)
    return Line(
        job=run.job,
        gang=gang,
        kind="order" if run.order else "outlook",
        provisionable=offer.provisionable,
        max_usd_per_hour=price_ceiling(problem, part, problem.job[run.job].max_price),
        cloud=offer.cloud,
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        market=offer.market.value,
        machines=part.machines,
        accelerator=part.machine.accelerator,
        accelerators=part.machines * part.machine.accelerator_count,
        start=run.start,
        end=run.end,
        hours=Fraction(billed // _MICRO, 3_600_000_000),
        share=run.share,
        startup=run.startups > 0,
        usd_per_hour=rate,
        amortised_usd_per_hour=amortised,
        steps=run.steps if index == 0 else 0,
        steps_per_hour=c.steps_per_hour,
        on_time_steps_per_hour=c.on_time_steps_per_hour,
        billed_share=c.billed_share,
        usd_per_step=None if amortised is None else per_step(amortised.over(billed) + extra, run.steps),
        cost_usd=rate.over(billed) + extra,
        price_as_of=day_of(offer),
        price_source=offer.source,
        weak=c.weak,
        reservation_cost=part.listing.cost or "",
        capacity=capacity_of(problem, part, problem.job[run.job].team),
        fallback=fallback,
        **external_of_line(problem, run, part, falls_back=fallback is not None),
    )


def _fallback_of(problem: PlacementProblem, run: ScheduledRun) -> LineFallback | None:
    """Return the fallback of a guarded run as its line shows it; None without one."""
    c = run.candidate
    if c.fallback is None or c.guard is None:
        return None
    part = c.fallback.parts[-1]
    ceiling = UsdPerHour(sum(price_ceiling(problem, each).nanos for each in c.fallback.parts))
    return LineFallback(
        cloud=part.offer.cloud,
        region=part.offer.region,
        zone=part.offer.zone,
        instance_type=part.offer.instance_type,
        market=part.offer.market.value,
        machines=c.fallback.machines,
        accelerator=c.fallback.accelerator,
        accelerators=c.fallback.accelerators,
        usd_per_hour=c.fallback.usd_per_hour,
        max_usd_per_hour=ceiling,
        hours=Fraction(run.fallback_billed // _MICRO, 3_600_000_000),
        cost_usd=run.fallback_usd,
        probability=c.guard.probability,
        refusal_probability=c.guard.refusal_probability,
        reserved=c.guard.reserves_fallback,
    )


def capacity_of(problem: PlacementProblem, part: GangPart, team: str) -> Capacity:
    """Return "unknown" where neither the offer nor the limits file says how many machines can be had."""
    return "" if use_by_machine(problem.limits, part.listing, team) else "unknown"


def day_of(offer: Offer) -> str:
    """Return the day of the offer's price: ``2026-11-20``, or ``undated``."""
    return offer.as_of.isoformat() if offer.as_of else "undated"


def per_step(amount: Usd, steps: int) -> Usd | None:
    """Return dollars a step, to the nano-dollar; None for no steps."""
    return Usd(divide_half_even(amount.nanos, steps)) if steps > 0 else None


def price_ceiling(problem: PlacementProblem, part: GangPart, max_price: UsdPerHour | None = None) -> UsdPerHour:
    """Return the price above which the line must not be bought.

    On spot that is the on-demand price there, or 125 % of the spot price where there is none; at most ``max_price`` an
    accelerator.
    """
    offer = part.offer
    if offer.market is not Market.SPOT:
        return offer.usd_per_hour.times(part.machines)
    on_demand = [
        o.usd_per_hour
        for o in problem.on_demand.get((offer.cloud, offer.region, offer.instance_type), ())
        if o.zone in (None, offer.zone)
    ]
    each = max(min(on_demand), offer.usd_per_hour) if on_demand else offer.usd_per_hour.scaled(Fraction(5, 4))
    if max_price is not None:
        each = min(each, max_price.times(part.machine.accelerator_count))
    return each.times(part.machines)


@dataclass(frozen=True, slots=True)
class _Moving:
    """One transfer of a job into a region, in the month in which it is billed."""

    job: str
    to: RegionId
    month: str
    transfer: Transfer


def moves_of(problem: PlacementProblem, runs: Mapping[str, Sequence[ScheduledRun]]) -> tuple[PlannedMove, ...]:
    """Return all moves, each with its share of its meter's bill for the month (by bytes, adding up exactly)."""
    moving = [m for name in sorted(runs) for m in _moving(problem, problem.job[name], runs[name])]
    bills: dict[tuple[str, str], list[_Moving]] = {}
    for move in moving:
        bills.setdefault((move.month, move.transfer.tariff.meter), []).append(move)
    costs: dict[tuple[str, str], Usd] = {}
    for month in sorted({m.month for m in moving}):
        items: list[tuple[Tariff, int, int]] = []
        for (billed_in, _), bill_moves in sorted(bills.items(), key=lambda item: item[0]):
            if billed_in == month:
                tariff = bill_moves[0].transfer.tariff
                volume = sum(m.transfer.volume_bytes for m in bill_moves)
                items.append((tariff, already_moved(problem, tariff, month), volume))
        allowances = {tariff.cloud: allowance_left(problem, tariff.cloud, month) for tariff, _, _ in items}
        for (tariff, _, _), cost in zip(items, compute_meter_costs(items, allowances), strict=True):
            costs[month, tariff.meter] = cost
    shares: dict[int, Usd] = {}
    for bill, bill_moves in bills.items():
        parts = costs[bill].split([m.transfer.volume_bytes for m in bill_moves])
        shares.update({id(m): part for m, part in zip(bill_moves, parts, strict=True)})
    return tuple(
        PlannedMove(
            job=m.job,
            what=m.transfer.what,
            source=str(m.transfer.source),
            to=str(m.to),
            gib=m.transfer.gib,
            month=m.month,
            meter=m.transfer.tariff.meter,
            cost_usd=shares[id(m)],
        )
        for m in moving
    )


Volumes = Mapping[tuple[str, str], tuple[Tariff, int]]
"""Bytes to move by month and meter, each with the meter's tariff."""


def moved_volumes(problem: PlacementProblem, runs: Mapping[str, Sequence[ScheduledRun]]) -> Volumes:
    """Return what these runs move together."""
    return _added({}, ((m.month, m.transfer) for name in runs for m in _moving(problem, problem.job[name], runs[name])))


def volumes_without(volumes: Volumes, removed_volumes: Volumes) -> Volumes:
    """Return the volumes less ``removed_volumes``, which are among them."""
    others = {
        key: (tariff, volume - removed_volumes.get(key, (tariff, 0))[1]) for key, (tariff, volume) in volumes.items()
    }
    return {key: (tariff, volume) for key, (tariff, volume) in others.items() if volume > 0}


def rise_beside(problem: PlacementProblem, others: Volumes, added_volumes: Volumes) -> Usd:
    """Return by how much the bills of all months rise if ``added_volumes`` is moved beside what others move."""
    together = dict(others)
    for key, (tariff, volume) in added_volumes.items():
        together[key] = (tariff, together.get(key, (tariff, 0))[1] + volume)
    months = sorted({month for month, _ in added_volumes})
    return Usd.total(_bill(problem, together, month) - _bill(problem, others, month) for month in months)


def cost_beside(problem: PlacementProblem, others: Volumes, month: str, transfers: Sequence[Transfer]) -> Usd:
    """Return by how much the month's bill rises if these bytes are moved beside what others move."""
    return rise_beside(problem, others, _added({}, ((month, transfer) for transfer in transfers)))


def _added(volumes: Volumes, moving: Iterable[tuple[str, Transfer]]) -> Volumes:
    totals = dict(volumes)
    for month, transfer in moving:
        key = (month, transfer.tariff.meter)
        totals[key] = (transfer.tariff, totals.get(key, (transfer.tariff, 0))[1] + transfer.volume_bytes)
    return totals


def _bill(problem: PlacementProblem, volumes: Volumes, month: str) -> Usd:
    items = [
        (tariff, already_moved(problem, tariff, month), volume)
        for (billed_in, _), (tariff, volume) in sorted(volumes.items(), key=lambda item: item[0])
        if billed_in == month
    ]
    clouds = {tariff.cloud for tariff, _, _ in items}
    return Usd.total(compute_meter_costs(items, {cloud: allowance_left(problem, cloud, month) for cloud in clouds}))


def _moving(problem: PlacementProblem, job: Job, runs: Sequence[ScheduledRun]) -> list[_Moving]:
    """Return the job's transfers: data into each region at its first use, the checkpoint along with the job."""
    transfers: list[_Moving] = []
    regions: set[RegionId] = set()
    checkpoint_region = checkpoint_home(job) if job.status is not None and job.status.steps_done > 0 else None
    for run in runs:
        region = run.candidate.region
        month = run.start.strftime("%Y-%m")
        if region not in regions:
            transfers += [
                _Moving(job.name, region, month, t) for t in run.candidate.transfers if t.what != "checkpoint"
            ]
            regions.add(region)
        if checkpoint_region is not None and checkpoint_region != region:
            transfer = checkpoint_transfer(job, checkpoint_region, region, problem.book)
            if transfer is not None:
                transfers.append(_Moving(job.name, region, month, transfer))
        checkpoint_region = region if job.checkpoint is not None else None
    return transfers


def job_cost(lines: Sequence[Line], moves: Sequence[PlannedMove], job: str) -> Usd:
    """Return the cost of one job's lines and moves."""
    return Usd.total([*(x.cost_usd for x in lines if x.job == job), *(m.cost_usd for m in moves if m.job == job)])


def amortised_per_step(runs: Sequence[ScheduledRun], moves: Sequence[PlannedMove]) -> Usd | None:
    """Return a job's whole cost a step with reservations at their amortised price, moves included.

    None where one of the prices is unknown.
    """
    run_costs = [amortised_usd(run) for run in runs]
    if any(usd is None for usd in run_costs):
        return None
    total = Usd.total([*(usd for usd in run_costs if usd is not None), *(m.cost_usd for m in moves)])
    return per_step(total, sum(run.steps for run in runs))


def amortised_usd(run: ScheduledRun) -> Usd | None:
    """Return the cost of a run with reservations at their amortised price; None where that is not known."""
    rate = run.candidate.amortised_usd_per_hour
    return None if rate is None else rate.over(run.billed) + run.fallback_usd
