"""Ledger entries of what was planned and of what machines really ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
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
    gone within the same microsecond cost nothing and has none."""
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
