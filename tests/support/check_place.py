"""Checks of a plan against the map and the shop: what is sold, where a job may go, what its gang must be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial

from pricing.machine_images import explain_unmade
from pricing.machines import RDMA_FABRICS
from pricing.offers import Offer
from pricing.places import PROVISIONABLE_CLOUDS, Market
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Line
from tests.support.mix_oracle import mix_problems
from tests.support.placement_oracle import forbidden, unplaceable
from tests.support.plan_view import Stretch, View


def check_places(view: View) -> Iterator[str]:
    """Residency, allowed clouds, what can be carried out, and the number of regions."""
    clouds = view.limits.clouds
    for job in view.jobs:
        for line in view.lines_of(job):
            region = next(
                (r for r in view.book.regions if (r.id.cloud, r.id.region) == (line.cloud, line.region)), None
            )
            if region is None:
                yield f"{job.name}: unknown region {line.cloud}/{line.region}"
                continue
            why = forbidden(job.residency, region)
            if why:
                yield f"{job.name}: {line.cloud}/{line.region} is not permitted: {why}"
            if clouds is not None and line.cloud not in clouds:
                yield f"{job.name}: {line.cloud} is not an allowed cloud"
            made = line.cloud in PROVISIONABLE_CLOUDS and not explain_unmade(line.cloud, line.instance_type)
            if line.provisionable != made:
                yield f"{job.name}: {line.cloud} {line.instance_type} marked provisionable {line.provisionable}"
            if not view.advisory and not made:
                yield f"{job.name}: {line.cloud} {line.instance_type} cannot be carried out"
        regions = {stretch.region for stretch in view.stretches(job)}
        if len(regions) > job.gang.regions:
            yield f"{job.name}: {len(regions)} regions, may use {job.gang.regions}"


def check_groups(view: View) -> Iterator[str]:
    """All placed jobs of one group are in one region."""
    regions: dict[str, set[str]] = {}
    for job in view.jobs:
        if job.group is not None:
            regions.setdefault(job.group, set()).update(str(stretch.region) for stretch in view.stretches(job))
    for group, found in regions.items():
        if len(found) > 1:
            yield f"group {group} is in {sorted(found)}"


def check_placement(view: View) -> Iterator[str]:
    """A stated placement permits every gang, and so does a derived one that the plan says it used.

    A derived one moves no job: the gang on which it runs now is as good as permitted.
    """
    for job in map(partial(_typed, view), view.jobs):
        for stretch in view.stretches(job):
            line = stretch.head
            region = next(r for r in view.book.regions if (r.id.cloud, r.id.region) == (line.cloud, line.region))
            machines = {view.book.machine(line.cloud, part.instance_type) for part in stretch.lines}
            zones = {part.zone for part in stretch.lines}
            for machine in machines - {None}:
                assert machine is not None
                why = unplaceable(job, view.book, machine, stretch.accelerators, zones, region)
                if why and not (_is_derived(view, job) and _goes_on(job, stretch)):
                    yield f"{job.name} {line.start}: {why}"


def _is_derived(view: View, job: Job) -> bool:
    """Whether the job's own file states no placement."""
    own = view.job(job.name)
    return own is not None and own.placement is None


def _goes_on(job: Job, stretch: Stretch) -> bool:
    """Whether the gang is where the job runs at the moment of planning."""
    place = None if job.status is None else job.status.running
    line = stretch.lines[-1]
    return place is not None and (place.cloud, place.region, place.instance_type, str(place.market)) == (
        line.cloud,
        line.region,
        line.instance_type,
        line.market,
    )


def _typed(view: View, job: Job) -> Job:
    """The job with the placement that the plan derived and used; as it is where it used none."""
    found = next((each for each in view.plan.usage.placement_types if each.job == job.name), None)
    if found is None or job.placement is not None or not found.used:
        return job
    return job.model_copy(update={"placement": found.type})


def check_gangs(view: View) -> Iterator[str]:
    """Each gang is one that the job asked for, whole, in one place."""
    for job in view.jobs:
        for stretch in view.stretches(job):
            for problem in _gang_problems(view, job, stretch):
                yield f"{job.name} {stretch.head.start}: {problem}"


def _gang_problems(view: View, job: Job, stretch: Stretch) -> Iterator[str]:
    lines = stretch.lines
    wanted = {(option.accelerator, option.count) for option in job.gang.options}
    for accelerator in sorted({line.accelerator for line in lines}):
        if (accelerator, stretch.accelerators) not in wanted:
            yield f"{accelerator}:{stretch.accelerators} was not asked for"
    if len({(line.cloud, line.region) for line in lines}) > 1:
        yield "machines of several regions in one gang"
    if len({line.instance_type for line in lines}) > 1:
        yield from mix_problems(job, view.book, lines)
    if job.gang.same_zone and len({line.zone for line in lines}) > 1:
        yield "several zones in one gang"
    total = sum(line.machines for line in lines)
    for line in lines:
        machine = view.book.machine(line.cloud, line.instance_type)
        if machine is None:
            yield f"unknown machine {line.instance_type}"
            continue
        if line.machines < 1 or line.accelerators != line.machines * machine.accelerator_count:
            yield f"{line.machines} machines are not {line.accelerators} accelerators"
        if line.accelerator != machine.accelerator:
            yield f"{line.instance_type} has {machine.accelerator}, not {line.accelerator}"
        if job.gang.machines not in (None, total):
            yield f"{total} machines, {job.gang.machines} asked for"
        if job.gang.rdma == "required" and total > 1 and machine.fabric not in RDMA_FABRICS:
            yield f"{line.instance_type} has no RDMA fabric"
    yield from _market_problems(job, lines, total)


def _market_problems(job: Job, lines: tuple[Line, ...], total: int) -> Iterator[str]:
    spot = sum(line.machines for line in lines if line.market == Market.SPOT)
    if job.market.spot == "never" and spot:
        yield "on spot, which the job forbids"
    if job.market.spot == "only" and any(line.market == Market.ON_DEMAND for line in lines):
        yield "on demand, but the job wants spot only"
    core = math.ceil(Fraction(str(job.gang.on_demand_share)) * total)
    if total - spot < core:
        yield f"an on-demand core of {total - spot} machines, at least {core} asked for"


def check_prices(view: View) -> Iterator[str]:
    """The hourly price of each line is the offer's after discounts, or nothing on a reservation."""
    for line in view.plan.lines:
        price, amortised = line.usd_per_hour.nanos, line.amortised_usd_per_hour
        if line.max_usd_per_hour.nanos < price:
            yield f"{line.job}: pays {line.usd_per_hour}, above its maximum {line.max_usd_per_hour}"
        if line.market == Market.RESERVED:
            # Which price: check_time.check_reservations.
            if price != 0 or (line.reservation_cost == "amortised" and (amortised is None or amortised.nanos <= 0)):
                yield f"{line.job}: reserved at {line.usd_per_hour}, amortised {line.amortised_usd_per_hour}"
            continue
        offer = _offer(view, line)
        if offer is None:
            yield f"{line.job}: nobody sells {line.instance_type} {line.market} in {line.cloud}/{line.region}"
            continue
        machine = view.book.machine(line.cloud, line.instance_type)
        exact = (
            offer.usd_per_hour.nanos
            * line.machines
            * discounted_share(view.limits, offer, machine.family if machine else "")
        )
        if abs(price - exact) > Fraction(line.machines, 2):
            yield f"{line.job}: {line.usd_per_hour} an hour, the offer is {float(exact) / 1e9}"
        if amortised is None or amortised.nanos != price:
            yield f"{line.job}: amortised {line.amortised_usd_per_hour} differs from {line.usd_per_hour}"


def check_max_price(view: View) -> Iterator[str]:
    """No line, no fallback and no ceiling is above the job's cap on an accelerator-hour."""
    for line in view.plan.lines:
        job = view.job(line.job)
        if job is None or job.max_price is None:
            continue
        most = job.max_price.nanos * line.accelerators
        paid = line.amortised_usd_per_hour if line.market == Market.RESERVED else line.usd_per_hour
        if paid is None or paid.nanos > most:
            yield f"{line.job}: pays {paid} for {line.accelerators}, its max_price is {job.max_price}"
        if line.max_usd_per_hour.nanos > most:
            yield f"{line.job}: its ceiling is {line.max_usd_per_hour}, its max_price {job.max_price}"
        behind = line.fallback
        if behind is not None and behind.usd_per_hour.nanos > job.max_price.nanos * behind.accelerators:
            yield f"{line.job}: falls back on {behind.usd_per_hour}, its max_price is {job.max_price}"


def check_fallbacks(view: View) -> Iterator[str]:
    """A spot line falls back on an on-demand offer at its price, on as many accelerators as the job asks for."""
    for line in view.plan.lines:
        behind = line.fallback
        if behind is None:
            continue
        job = view.job(line.job)
        if line.market != Market.SPOT:
            yield f"{line.job}: a line {line.market} has a fallback"
        if behind.market != Market.ON_DEMAND:
            yield f"{line.job}: falls back on {behind.market}"
        if job is not None and (behind.accelerator, behind.accelerators) not in {
            (option.accelerator, option.count) for option in job.gang.options
        }:
            yield f"{line.job}: falls back on {behind.accelerators} {behind.accelerator}"
        if job is not None and job.gang.machines not in (None, behind.machines):
            yield f"{line.job}: falls back on {behind.machines} machines"
        if job is not None and job.market.spot == "only":
            yield f"{line.job}: falls back on demand, but the job wants spot only"
        name = (behind.cloud, behind.region, behind.zone or "", behind.instance_type, behind.market)
        offer = next((offer for offer in view.book.offers if offer.key == name), None)
        machine = view.book.machine(behind.cloud, behind.instance_type)
        if offer is None or machine is None:
            yield f"{line.job}: nobody sells its fallback {behind.instance_type} in {behind.cloud}/{behind.region}"
            continue
        exact = offer.usd_per_hour.nanos * behind.machines * discounted_share(view.limits, offer, machine.family)
        if abs(behind.usd_per_hour.nanos - exact) > Fraction(behind.machines, 2):
            yield f"{line.job}: its fallback costs {behind.usd_per_hour} an hour, the offer is {float(exact) / 1e9}"
        if not 0 <= behind.probability <= 1 or behind.hours < 0:
            yield f"{line.job}: falls back in {behind.probability} of runs for {float(behind.hours)} h"


def _offer(view: View, line: Line) -> Offer | None:
    name = (line.cloud, line.region, line.zone or "", line.instance_type, line.market)
    return next((offer for offer in view.book.offers if offer.key == name), None)


def discounted_share(limits: Limits, offer: Offer, family: str) -> Fraction:
    """The share of the price that is left after the most specific discount."""
    fitting = [
        (sum(wish is not None for wish in (d.family, d.market)), d.family is not None, d.percent)
        for d in limits.discounts
        if d.cloud == offer.cloud and d.family in (None, family) and d.market in (None, offer.market)
    ]
    percent = max(fitting)[2] if fitting else Decimal(0)
    return 1 - Fraction(percent) / 100
