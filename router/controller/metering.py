"""Build ledger entries for planned orders and for the real running time of machines. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import accumulate, pairwise

from pricing.money import Usd
from pricing.places import Market
from router.controller.orders import Order
from router.controller.time_use import TimeSegment, TrainingRecord, split_machine_time, training_record_of
from router.jobs.spec import Job
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse, utc
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord

_HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)
SUNK = "sunk"


def planned_entries(
    plan: str, orders: Iterable[Order], jobs: dict[str, Job], digests: dict[str, str], at: datetime
) -> tuple[LedgerEntry, ...]:
    """Return one entry per line of every order; reservations are entered at their amortised price.

    ``jobs`` and ``digests`` are by job name: KeyError for a job that is missing.
    """
    return tuple(
        _planned_entry(plan, order, number, jobs[order.job], digests[order.job], at)
        for order in orders
        for number in range(len(order.lines))
    )


def _planned_entry(plan: str, order: Order, number: int, job: Job, digest: str, at: datetime) -> LedgerEntry:
    line = order.lines[number]
    return LedgerEntry(
        key=f"planned {plan} {order.gang} {utc(order.start).isoformat()} {number}",
        kind=LedgerEntryKind.PLANNED,
        recorded_at=utc(at),
        plan=plan,
        job=order.job,
        job_digest=digest,
        team=job.team,
        project=job.project,
        cost_center=job.cost_center,
        gang=order.gang,
        cloud=line.cloud,
        region=line.region,
        zone=line.zone,
        instance_type=line.instance_type,
        market=Market(line.market),
        accelerator=line.accelerator,
        accelerators=line.accelerators,
        machines=line.machines,
        period=Month.of(line.start),
        start=utc(line.start),
        end=utc(line.end),
        quantity=line.hours,
        usd_per_hour=line.amortised_usd_per_hour,
        usd=line.amortised_usd or Usd(0),
        unpriced=line.amortised_usd is None,
        steps=line.steps,
        price_as_of=line.price_as_of,
        price_source=line.price_source,
    )


def metered_entries(
    attempt: Attempt, nodes: Sequence[NodeRecord], at: datetime, course: TrainingRecord | None = None
) -> tuple[LedgerEntry, ...]:
    """Return the entries for the life of every machine that existed and is gone, at its planned price.

    A machine has one entry for each segment of time with one use, with the machine's id, what priced it, and what one
    such machine cost on demand. The segments of a machine have no gap or overlap, and their money adds up to that of
    its whole time, which is rounded once. A reserved machine has its amortised price, and none (unpriced) where that is
    unknown. ``course``: how the training went; without it, as the attempt and its machines say.

    A machine that was gone within the same microsecond cost nothing and has no entry. The gang's steps are entered with
    rank 0, on its work; the lost ones on its lost work.
    """
    course = course or training_record_of(attempt, nodes, (), None)
    return tuple(
        entry
        for node in nodes
        if node.made_at is not None and node.gone_at is not None
        for entry in _machine_entries(attempt, node, split_machine_time(node.made_at, node.gone_at, course), at)
    )


def _machine_entries(
    attempt: Attempt, node: NodeRecord, segments: Sequence[TimeSegment], at: datetime
) -> Iterator[LedgerEntry]:
    saved_steps = (attempt.kept_step or attempt.first_step) - attempt.first_step
    lost_total = (attempt.last_step or 0) - (attempt.kept_step or 0)
    steps = _spread_steps(saved_steps if node.rank == 0 else 0, segments, (MachineUse.WORK, MachineUse.OVERRUN))
    lost_steps = _spread_steps(lost_total if node.rank == 0 else 0, segments, (MachineUse.RESTART_LOST_WORK,))
    cost_before = Usd(0)
    sunk = node.reservation_cost == SUNK
    for number, segment in enumerate(segments):
        cost_until = Usd(0) if node.unpriced else node.usd_per_hour.over(segment.end - segments[0].start)
        entry = metered_entry(
            attempt,
            at,
            key=f"metered {attempt.id} {node.rank} {segment.start.isoformat()}",
            what=CostItem.MACHINE,
            start=segment.start,
            end=segment.end,
            usd=cost_until - cost_before,
            unpriced=node.unpriced,
            rank=node.rank,
        )
        yield replace(
            entry,
            use=segment.use,
            cloud=attempt.cloud,
            region=attempt.region,
            zone=node.zone,
            instance_type=node.instance_type,
            market=node.market,
            accelerator=node.accelerator,
            accelerators=node.accelerators,
            quantity=Fraction(segment.ticks, _HOUR // _TICK),
            usd_per_hour=None if node.unpriced else node.usd_per_hour,
            resource=node.machine_id or "",
            price_as_of=node.price_as_of,
            price_source=f"{node.price_source}, sunk".lstrip(", ") if sunk else node.price_source,
            on_demand_usd_per_hour=node.on_demand_usd_per_hour,
            steps=steps[number],
            lost_steps=lost_steps[number],
        )
        cost_before = cost_until


def metered_entry(
    attempt: Attempt,
    at: datetime,
    *,
    key: str,
    what: CostItem,
    start: datetime,
    end: datetime,
    usd: Usd,
    unpriced: bool,
    rank: int | None,
) -> LedgerEntry:
    """Return an entry of something metered for an attempt, in the books of the month in which it starts.

    Times are UTC; ``at`` is when it is recorded. The caller adds quantity, place and price by ``dataclasses.replace``.
    """
    return LedgerEntry(
        key=key,
        kind=LedgerEntryKind.METERED,
        recorded_at=utc(at),
        plan=attempt.plan,
        job=attempt.job,
        job_digest=attempt.job_digest,
        team=attempt.team,
        project=attempt.project,
        cost_center=attempt.cost_center,
        gang=attempt.gang,
        attempt=attempt.id,
        what=what,
        period=Month.of(start),
        start=start,
        end=end,
        usd=usd,
        unpriced=unpriced,
        rank=rank,
        machines=1 if what is CostItem.MACHINE else 0,
    )


def _spread_steps(steps: int, segments: Sequence[TimeSegment], uses: Collection[MachineUse]) -> list[int]:
    """Return the steps spread over the segments of these uses, by time; over the last segment where there are none."""
    weights = [segment.ticks if segment.use in uses else 0 for segment in segments]
    if not any(weights):
        weights = [0] * (len(segments) - 1) + [1] * bool(segments)
    ends = [steps * done // sum(weights) for done in accumulate(weights)]
    return [end - begin for begin, end in pairwise([0, *ends])]


def cost_so_far(nodes: Iterable[NodeRecord], now: datetime) -> Usd:
    """Return what the machines have cost until now, running ones included."""
    return Usd.total(
        node.usd_per_hour.over(max((node.gone_at or now) - node.made_at, timedelta(0)))
        for node in nodes
        if node.made_at is not None
    )
