"""Which offers a job's own words permit, worked out a second time: what a sieve must not lose."""

from __future__ import annotations

import math
from fractions import Fraction

from pricing.machine_images import explain_unmade
from pricing.machines import RDMA_FABRICS
from pricing.offers import Offer
from pricing.places import PROVISIONABLE_CLOUDS, Market
from router.jobs.gang import GangOption
from router.jobs.spec import Job
from router.planning.find.candidates import candidates_for
from tests.support.check_place import discounted_share
from tests.support.instances import Instance
from tests.support.placement_oracle import forbidden, unplaceable
from tests.support.schedules import within_cap
from tests.support.shared_limits import Holding, shared_things
from tests.support.shipping import needs_into


def missing_candidates(instance: Instance) -> list[str]:
    """Job and offer of what is permitted, fits alone, and is not kept."""
    result: list[str] = []
    for job in instance.jobs:
        kept, _ = candidates_for(job, instance.book, instance.limits, instance.now, False)
        have = {(c.parts[-1].offer.key, c.accelerators) for c in kept}
        for option in job.gang.options:
            result += [
                f"{job.name}: {offer.key} x {option.accelerator}:{option.count}"
                for offer in instance.book.offers
                if (offer.key, option.count) not in have and _eligible(instance, job, option, offer)
            ]
    return result


def _eligible(instance: Instance, job: Job, option: GangOption, offer: Offer) -> bool:
    book = instance.book
    machine, region = book.machine(offer.cloud, offer.instance_type), book.region(offer.region_id)
    assert machine is not None
    assert region is not None
    number = option.count // machine.accelerator_count
    shape = job.gang.machines in (None, number)
    fits = machine.accelerator == option.accelerator and option.count % machine.accelerator_count == 0
    made = offer.cloud in PROVISIONABLE_CLOUDS and not explain_unmade(offer.cloud, offer.instance_type)
    allowed = made and offer.cloud in (instance.limits.clouds or {offer.cloud})
    fabric = job.gang.rdma != "required" or number == 1 or machine.fabric in RDMA_FABRICS
    return (
        fits
        and shape
        and allowed
        and fabric
        and not forbidden(job.residency, region)
        and _market_fits(job, offer, number)
        and _price_fits(instance, job, offer)
        and _speed_known(job, option, machine.fabric in RDMA_FABRICS, number)
        and _moves_known(instance, job, offer)
        and _fits_alone(instance, offer, number)
        and not unplaceable(job, book, machine, option.count, {offer.zone}, region)
    )


def _market_fits(job: Job, offer: Offer, number: int) -> bool:
    if offer.market is Market.SPOT:
        # With a core the rest may or may not find its on-demand half: not judged here.
        return job.market.spot != "never" and math.ceil(Fraction(str(job.gang.on_demand_share)) * number) == 0
    return job.market.spot != "only"


def _price_fits(instance: Instance, job: Job, offer: Offer) -> bool:
    machine = instance.book.machine(offer.cloud, offer.instance_type)
    assert machine is not None
    if job.max_price is None:
        return True
    price = round(offer.usd_per_hour.nanos * discounted_share(instance.limits, offer, machine.family))
    return price <= job.max_price.nanos * machine.accelerator_count


def _speed_known(job: Job, option: GangOption, rdma: bool, number: int) -> bool:
    wanted = "rdma" if rdma else "ethernet"
    return any(
        (p.accelerator, p.count) == (option.accelerator, option.count)
        and (number == 1 or (p.fabric or "rdma") == wanted)
        for p in job.workload.profile
    )


def _moves_known(instance: Instance, job: Job, offer: Offer) -> bool:
    needs = needs_into(job, offer.region_id, instance.book)
    return all(need.tariff is not None for need in needs) and within_cap(job, needs)


def _fits_alone(instance: Instance, offer: Offer, number: int) -> bool:
    name = (offer.cloud, offer.region, offer.zone, offer.instance_type, offer.market.value)
    machine = instance.book.machine(offer.cloud, offer.instance_type)
    assert machine is not None
    try:
        things = shared_things(instance.limits, {name: offer.machines_cap})
        return all(thing.use(Holding(name, machine, number)) <= thing.amount for thing in things)
    except ValueError:
        return False
