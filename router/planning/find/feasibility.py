"""Check which rules an offer breaks for a job, before any price or speed is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pricing.places import Market
from router.jobs.limits import Limit, Limits
from router.jobs.residency import residency_refusal
from router.jobs.spec import GangOption, Job
from router.planning.find.listings import OfferListing, is_named_by


@dataclass(frozen=True, slots=True)
class ListingRefusal:
    """Why a listing cannot serve a job; ``code`` groups reasons."""

    code: str
    reason: str


def refusal(
    job: Job, option: GangOption, listing: OfferListing, limits: Limits, covering: Sequence[Limit] | None = None
) -> ListingRefusal | None:
    """Return the first rule that the listing breaks for a gang of this size; None for none.

    ``covering``: the limits that count this listing, where the caller knows them already.
    """
    per_machine = listing.machine.accelerator_count
    if option.count % per_machine:
        what = f"{option.count} {option.accelerator} is not a whole number of machines of {per_machine}"
        return ListingRefusal("size", what)
    machines = option.count // per_machine
    if limits.clouds is not None and listing.offer.cloud not in limits.clouds:
        return ListingRefusal("cloud", f"cloud {listing.offer.cloud} is not allowed by the limits file")
    forbidden = residency_refusal(job.residency, listing.region)
    if forbidden is not None:
        return ListingRefusal("residency", f"residency: {forbidden}")
    market = _market_refusal(job, listing)
    if market is not None:
        return ListingRefusal("market", market)
    if job.gang.rdma == "required" and machines > 1 and not listing.machine.has_rdma:
        known = listing.machine.fabric or "unknown"
        return ListingRefusal("fabric", f"an RDMA fabric is required, {listing.machine.instance_type} has {known}")
    if covering is None:
        covering = [limit for limit in limits.limits if covers(limit, listing)]
    return _capacity_refusal(job, listing, covering, machines)


def _market_refusal(job: Job, listing: OfferListing) -> str | None:
    spot = listing.offer.market is Market.SPOT
    if spot and job.market.spot == "never":
        return "the job does not allow spot"
    if not spot and job.market.spot == "only":
        return "the job wants spot only"
    return None


def _capacity_refusal(
    job: Job, listing: OfferListing, covering: Sequence[Limit], machines: int
) -> ListingRefusal | None:
    core = math.ceil(job.gang.on_demand_share * machines - 1e-9) if listing.offer.market is Market.SPOT else 0
    bought = machines - core if core < machines else machines
    if listing.cap is not None and bought > listing.cap:
        return ListingRefusal("capacity", f"{listing.cap} machines to be had, {bought} needed")
    for limit in covering:
        use = limit_use(limit, listing, bought)
        if use is None:
            return ListingRefusal(
                "limit", f"{limit.name} counts {limit.unit}, unknown for {listing.machine.instance_type}"
            )
        if use > limit.amount:
            return ListingRefusal("limit", f"{limit.name} allows {limit.amount} {limit.unit}, {use} needed")
    return None


def covers(limit: Limit, listing: OfferListing) -> bool:
    """Return whether the limit counts this listing's machines; a limit without a market counts all but reservations."""
    market = listing.offer.market
    sold_so = market is not Market.RESERVED if limit.market is None else market is limit.market
    return sold_so and limit.accelerator in (None, listing.machine.accelerator) and is_named_by(limit, listing)


def limit_use(limit: Limit, listing: OfferListing, machines: int) -> int | None:
    """Return how much of the limit, in its own unit, the machines take; None when the machine's figure is unknown."""
    if limit.unit == "machines":
        return machines
    if limit.unit == "accelerators":
        return machines * listing.machine.accelerator_count
    return None if listing.machine.vcpus is None else machines * listing.machine.vcpus
