"""Instances whose runs go as expected: speeds known, nothing taken back, one price a byte. And time going by in them.

What such a plan expects is what happens, so planning again later must find nothing better to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pricing.book import PriceBook
from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job, Placement, Status
from router.planning.document.plan import Plan
from tests.support import made_up_book as shop
from tests.support.instances import Instance
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.plan_view import HOUR, Stretch, View, starting_time

NOW = datetime(2026, 11, 12, 18, tzinfo=UTC)
SLOT = timedelta(hours=1)
PLACES = ("aws/north-1", "aws/south-1", "aws/alps-1")


def steady_instance(seed: int) -> Instance:
    """Three to five jobs over two to four offers, most of which have room for one or two of them at a time."""
    rng = Random(seed)
    slots = rng.choice((5, 6, 7))
    deadlines = seed % 2 == 0
    offers = [
        shop.offer(
            place,
            "p9.48xlarge",
            market,
            f"{(60 if market == 'on_demand' else 22) + rng.uniform(0, 9):.3f}",
            cap=rng.choice((1, 1, 2)),
            interruptions=0.0,
        )
        for place in PLACES
        for market in ("on_demand", "spot")
        if rng.random() < 0.6 or (place, market) == (PLACES[0], "on_demand")
    ]
    jobs = []
    for index in range(rng.choice((3, 4, 5))):
        speed = rng.uniform(0.8e6, 1.2e6)
        more: dict[str, Any] = (
            {"deadline": NOW + SLOT * rng.choice((slots, slots, slots - 1))}
            if deadlines
            else {"max_wait": timedelta(hours=2)}
        )
        if rng.random() < 0.5:
            more["data"] = {"uri": "s3://x", "at": rng.choice(PLACES), "gib": rng.choice((50.0, 150.0))}
        if rng.random() < 0.75:
            # Several regions, or a second look would be freer than the first: it counts regions anew.
            more |= {"checkpoint": {"size_gib": 1e-6}, "regions": len(PLACES)}
        jobs.append(
            simple_job(
                f"job-{index}",
                ("H100", 8),
                steps=round(speed * rng.uniform(0.4, 2.6)),
                steps_per_hour=speed,
                startup_minutes=rng.choice((3, 5, 15)),  # never 0: then a pause would cost nothing
                min_saving=rng.choice(("0", "1")),
                priority=rng.choice((0, 0, 1)),
                **more,
            )
        )
    limits: Limits = make_limits(
        {"limits": [{"name": "spot", "cloud": "aws", "market": "spot", "unit": "machines", "amount": 2}]}
        if rng.random() < 0.5
        else {}
    )
    tariffs = tuple(tariff for tariff in shop.TARIFFS if len(tariff.tiers) == 1)
    tariffs += (shop.tariff("aws", shop.CROSS, "any", "any", (None, "0.03")),)
    made = shop.book(offers)
    book = PriceBook(made.as_of, made.offers, made.machines, made.accelerators, made.regions, tariffs, made.priors)
    return Instance(seed, tuple(jobs), book, limits, NOW, slots * SLOT, SLOT)


@dataclass(frozen=True)
class Later:
    """Where things stand at a moment, had the plan gone as expected: jobs not yet done, dollars spent.

    ``going_on``: the region of each job that the plan has running there right before and right after.
    """

    jobs: tuple[Job, ...]
    spent: float
    going_on: Mapping[str, RegionId]


def later(instance: Instance, plan: Plan, at: datetime) -> Later:
    """The plan carried out until ``at``; jobs that it left out are no longer asked for."""
    view = View(plan, instance.jobs, instance.book, instance.limits, False, None)
    jobs: list[Job] = []
    spent = 0.0
    going_on: dict[str, RegionId] = {}
    for job in instance.jobs:
        stretches = view.stretches(job)
        if not stretches:
            continue
        begun = [stretch for stretch in stretches if stretch.head.start < at]
        done = float(job.status.steps_done) if job.status is not None else 0.0
        for stretch in begun:
            steps, dollars = _progress(job, stretch, at)
            done += steps
            spent += dollars
        regions = {str(stretch.region) for stretch in begun}
        spent += sum(move.cost_usd.dollars() for move in plan.moves if move.job == job.name and move.to in regions)
        if done >= job.steps - 1:
            continue
        # Steps are whole: in favour of what is left, or a slot that is just enough would not be.
        jobs.append(_with_status(job, begun, min(int(done) + 2, job.steps - 1), instance.now, at))
        if any(stretch.head.start < at < stretch.head.end for stretch in begun):
            going_on[job.name] = begun[-1].region
    return Later(tuple(jobs), spent, going_on)


def _progress(job: Job, stretch: Stretch, at: datetime) -> tuple[float, float]:
    """Steps done and dollars spent by then."""
    line = stretch.head
    elapsed = (at - line.start) / HOUR
    startup = min(elapsed, starting_time(job) / HOUR) if line.startup else 0.0
    steps = sum(part.steps for part in stretch.lines)
    worked = min(elapsed - startup, steps / line.steps_per_hour)
    price = sum(part.usd_per_hour.dollars() for part in stretch.lines)
    return worked * line.steps_per_hour, price * (startup + line.billed_share * worked)


def _with_status(job: Job, begun: list[Stretch], done: int, now: datetime, at: datetime) -> Job:
    wait = max(timedelta(0), job.max_wait - (at - now))  # it began then, and does not begin anew
    if not begun:
        return job.model_copy(update={"max_wait": wait})
    last = begun[-1].head
    running = None
    if at <= last.end:
        running = Placement(
            cloud=last.cloud,
            region=last.region,
            zone=last.zone,
            instance_type=last.instance_type,
            market=Market(last.market),
            accelerators=last.accelerators,
        )
    status = Status(
        steps_done=done,
        running=running,
        checkpoint_in=begun[-1].region if job.checkpoint is not None else None,
        data_in=tuple({stretch.region for stretch in begun}),
    )
    return job.model_copy(update={"status": status, "max_wait": wait})
