"""Check which rules an offer breaks for a job, before any price or speed is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pricing.places import Market
from pricing.sale_rules import explain_unsold
from pricing.units import format_count
from router.jobs.gang import GangOption
from router.jobs.limits import Limits
from router.jobs.measured_speed import explain_network
from router.jobs.residency import residency_refusal
from router.jobs.spec import Job
from router.planning.find.limit_kinds import LimitPerMachine, use_by_machine
from router.planning.find.listings import OfferListing


@dataclass(frozen=True, slots=True)
class ListingRefusal:
    """Why a listing cannot serve a job; ``code`` groups reasons."""

    code: str
    reason: str


def refusal(
    job: Job,
    option: GangOption,
    listing: OfferListing,
    limits: Limits,
    counted: Sequence[LimitPerMachine] | None = None,
) -> ListingRefusal | None:
    """Return the first rule that the listing breaks for a gang of this size; None for none.

    ``counted``: what a machine takes of limits, where the caller knows it already or leaves limits out.
    """
    per_machine = listing.machine.accelerator_count
    if option.count % per_machine:
        what = f"{option.count} {option.accelerator} is not a whole number of machines of {per_machine}"
        return ListingRefusal("size", what)
    machines = option.count // per_machine
    shape = _shape_refusal(job, option, listing, machines)
    if shape is not None:
        return ListingRefusal("shape", shape)
    if limits.clouds is not None and listing.offer.cloud not in limits.clouds:
        return ListingRefusal("cloud", f"cloud {listing.offer.cloud} is not allowed by the limits file")
    forbidden = residency_refusal(job.residency, listing.region)
    if forbidden is not None:
        return ListingRefusal("residency", f"residency: {forbidden}")
    market = _market_refusal(job, listing)
    if market is not None:
        return ListingRefusal("market", market)
    dear = price_refusal(job, listing)
    if dear is not None:
        return dear
    excluded = explain_unsold(listing.offer.cloud, listing.offer.instance_type, per_machine, listing.offer.market)
    if excluded and listing.reservation:
        return ListingRefusal("reservation", excluded)
    if job.gang.rdma == "required" and machines > 1 and not listing.machine.has_rdma:
        known, lost = listing.machine.fabric or "unknown", explain_network(listing.machine)
        what = f"an RDMA fabric is required, {listing.machine.instance_type} has {known}{lost and f' ({lost})'}"
        return ListingRefusal("fabric", what)
    if counted is None:
        counted = use_by_machine(limits, listing, job.team)
    return _limit_refusal(job, listing, counted, machines)


def _shape_refusal(job: Job, option: GangOption, listing: OfferListing, machines: int) -> str | None:
    """Return why the gang may not be so many machines of this type."""
    machine = listing.machine
    if machine.is_slice and machines > 1:
        return f"{option} is one slice, {machine.instance_type} is one of {machine.accelerator_count}"
    if job.gang.asks_for(machines):
        return None
    asked = format_count(job.gang.machines or 0, "machine")
    return f"{option} is to be {asked}, of {machine.instance_type} it takes {machines}"


def _market_refusal(job: Job, listing: OfferListing) -> str | None:
    spot = listing.offer.market is Market.SPOT
    if spot and job.market.spot == "never":
        return "the job does not allow spot"
    if not spot and job.market.spot == "only":
        return "the job wants spot only"
    return None


def price_refusal(job: Job, listing: OfferListing) -> ListingRefusal | None:
    """Return why the listing is above the job's ``max_price``; None where it is not, or none is stated.

    A reservation counts at its amortised price, though nothing more is paid for it.
    """
    if job.max_price is None:
        return None
    if listing.amortised is None:
        unknown = f"what {listing.reservation} really costs is unknown (usd_per_hour or sunk in the limits file)"
        return ListingRefusal("max price", f"max_price is ${job.max_price}, and {unknown}")
    count = listing.machine.accelerator_count
    if listing.amortised.nanos <= job.max_price.nanos * count:
        return None
    each = f"${listing.amortised.dollars() / count:.6g} an accelerator-hour"
    return ListingRefusal("max price", f"{each}, max_price allows ${job.max_price}")


def _limit_refusal(
    job: Job, listing: OfferListing, counted: Sequence[LimitPerMachine], machines: int
) -> ListingRefusal | None:
    core = math.ceil(job.gang.on_demand_share * machines - 1e-9) if listing.offer.market is Market.SPOT else 0
    bought = machines - core if core < machines else machines
    for use in counted:
        limit = use.limit
        if use.per_machine is None:
            unknown = f"{limit.name} counts {limit.unit}, unknown for {listing.machine.instance_type}"
            return ListingRefusal("limit", unknown)
        if use.per_machine * bought > limit.amount:
            code = "limit" if limit.is_stated else "capacity"
            return ListingRefusal(code, f"{limit.allowance}, {use.per_machine * bought} needed")
    return None
