"""Compute what machines that keep running take of the shared limits, so that it is not given away twice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.planning.candidates import GangPart
from router.planning.listings import OfferListing, listings_by_accelerator
from router.planning.shared_limits import LimitUse, use_of_parts

_FREE = UsdPerHour(0)


@dataclass(frozen=True, slots=True)
class RunningMachines:
    """``machines`` machines of one type in one place, bought on one market; ``zone`` is None where it is not known."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    machines: int


def running_use(held: Iterable[RunningMachines], book: PriceBook, limits: Limits) -> LimitUse:
    """Return what the machines take of quotas, stock, reservations and the capacity of offers.

    Machines that are not for sale any more count too. Those of a type, region or accelerator that the book does not
    know are left out.
    """
    listings = listings_by_accelerator(book, limits)
    parts = [part for part in (_part(item, book, listings) for item in held) if part is not None]
    return use_of_parts(parts, limits)


def _part(item: RunningMachines, book: PriceBook, listings: Mapping[str, Sequence[OfferListing]]) -> GangPart | None:
    """Return the machines as a part of a gang; None where the book does not know type, region or accelerator."""
    machine = book.machine(item.cloud, item.instance_type)
    region = book.region(RegionId(item.cloud, item.region))
    accelerator = book.accelerator(machine.accelerator) if machine is not None else None
    if machine is None or region is None or accelerator is None:
        return None
    place = (item.cloud, item.region, item.instance_type, item.market)
    listings_there = [
        listing
        for listing in listings.get(machine.accelerator, ())
        if (listing.offer.cloud, listing.offer.region, listing.offer.instance_type, listing.offer.market) == place
        and (item.zone is None or listing.offer.zone in (None, item.zone))
    ]
    # An offer of the machine's own zone is preferred over one of the whole region.
    listing = min(listings_there, key=lambda one: (one.offer.zone != item.zone, one.name), default=None)
    if listing is None:
        offer = Offer(
            item.cloud, item.region, item.zone, item.instance_type, item.market, _FREE, "not for sale any more", None
        )
        listing = OfferListing(offer, machine, region, accelerator, _FREE, None)
    return GangPart(listing.offer, machine, item.machines, listing)
