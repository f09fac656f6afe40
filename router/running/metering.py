"""Ledger entries of what was planned and of what machines really ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from pricing.money import Usd
from pricing.places import Market
from router.jobs.spec import Job
from router.ledger.entry import Entry, Kind, utc
from router.running.orders import Order
from router.state.records import Attempt, NodeRecord

_HOUR = timedelta(hours=1)


def planned_entries(
    plan: str, orders: Iterable[Order], jobs: dict[str, Job], digests: dict[str, str], at: datetime
) -> tuple[Entry, ...]:
    """One a line of every order. ``jobs`` and ``digests`` by name: KeyError for a job that is missing."""
    return tuple(
        _planned(plan, order, number, jobs[order.job], digests[order.job], at)
        for order in orders
        for number in range(len(order.lines))
    )


def _planned(plan: str, order: Order, number: int, job: Job, digest: str, at: datetime) -> Entry:
    line = order.lines[number]
    return Entry(
        key=f"planned {plan} {order.gang} {utc(order.start).isoformat()} {number}",
        kind=Kind.PLANNED,
        recorded_at=utc(at),
        plan=plan,
        job=order.job,
        job_digest=digest,
        team=job.team,
        project=job.project,
        cost_center=job.cost_center,
        gang=order.gang,
        attempt="",
        rank=None,
        cloud=line.cloud,
        region=line.region,
        zone=line.zone,
        instance_type=line.instance_type,
        market=Market(line.market),
        accelerator=line.accelerator,
        accelerators=line.accelerators,
        machines=line.machines,
        start=utc(line.start),
        end=utc(line.end),
        hours=line.hours,
        usd_per_hour=line.usd_per_hour,
        usd=line.cost_usd,
        steps=line.steps,
        price_as_of=line.price_as_of,
        price_source=line.price_source,
    )


def metered_entries(attempt: Attempt, nodes: Sequence[NodeRecord], at: datetime) -> tuple[Entry, ...]:
    """One a machine that existed and is gone, for all of its time at the price it was planned with. A machine that was
    gone within the same microsecond cost nothing and has none. The gang's steps, and those it lost, stand with rank
    0."""
    kept = (attempt.kept_step or attempt.first_step) - attempt.first_step
    lost = (attempt.last_step or 0) - (attempt.kept_step or 0)
    return tuple(
        Entry(
            key=f"metered {attempt.id} {node.rank} {utc(node.made_at).isoformat()}",
            kind=Kind.METERED,
            recorded_at=utc(at),
            plan=attempt.plan,
            job=attempt.job,
            job_digest=attempt.job_digest,
            team=attempt.team,
            project=attempt.project,
            cost_center=attempt.cost_center,
            gang=attempt.gang,
            attempt=attempt.id,
            rank=node.rank,
            cloud=attempt.cloud,
            region=attempt.region,
            zone=node.zone,
            instance_type=node.instance_type,
            market=node.market,
            accelerator=node.accelerator,
            accelerators=node.accelerators,
            machines=1,
            start=utc(node.made_at),
            end=utc(node.gone_at),
            hours=Fraction(
                (node.gone_at - node.made_at) // timedelta(microseconds=1), _HOUR // timedelta(microseconds=1)
            ),
            usd_per_hour=node.usd_per_hour,
            usd=node.usd_per_hour.over(node.gone_at - node.made_at),
            steps=kept if node.rank == 0 else 0,
            lost_steps=lost if node.rank == 0 else 0,
        )
        for node in nodes
        if node.made_at is not None and node.gone_at is not None and node.gone_at > node.made_at
    )


def spent(nodes: Iterable[NodeRecord], now: datetime) -> Usd:
    """What machines have cost until now, those that still run included."""
    return Usd.total(
        node.usd_per_hour.over(max((node.gone_at or now) - node.made_at, timedelta(0)))
        for node in nodes
        if node.made_at is not None
    )


def in_month(entry: Entry, month: datetime) -> Usd:
    """The part of the entry that falls into the month: all of a metered entry's time is billed."""
    begins = month.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ends = (begins + timedelta(days=31)).replace(day=1)
    overlap = min(entry.end, ends) - max(entry.start, begins)
    return entry.usd_per_hour.over(overlap) if overlap > timedelta(0) else Usd(0)
