"""Compute what machines that run or are promised take of shared limits, so that it is not given away twice. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.planning.find.candidate import GangPart
from router.planning.find.listings import OfferListing, listings_by_accelerator
from router.planning.find.shared_limits import LimitCounter, LimitUse, use_with_fallback

_FREE = UsdPerHour(0)


@dataclass(frozen=True, slots=True)
class RunningMachines:
    """Machines of one type in one place, bought on one market, that jobs of one team hold.

    ``zone`` is None where it is not known.
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    machines: int
    team: str


def running_use(held: Iterable[RunningMachines], book: PriceBook, limits: Limits) -> LimitUse:
    """Return what the machines take of quotas, stock, reservations and the capacity of offers.

    Machines that are not for sale any more count too. Those of a type, region or accelerator that the book does not
    know are left out.
    """
    listings = listings_by_accelerator(book, limits)
    counter, total = LimitCounter(limits), Counter[str]()
    for item in held:
        total.update(_use_of(item, book, listings, counter))
    return dict(total)


@dataclass(frozen=True, slots=True)
class PromisedMachines:
    """Machines that a job holds, or is planned to hold, from ``start`` to ``end``.

    ``fallback``: those that are kept free for it meanwhile; None without any.
    """

    job: str
    machines: RunningMachines
    start: datetime
    end: datetime
    fallback: RunningMachines | None = None


def peak_use(
    promised: Iterable[PromisedMachines], start: datetime, end: datetime, book: PriceBook, limits: Limits
) -> LimitUse:
    """Return by limit the most that these machines take of it together at any moment from ``start`` to ``end``.

    A gang falls back after it is given up: a limit on both counts the larger of the two.
    """
    listings, counter = listings_by_accelerator(book, limits), LimitCounter(limits)
    changes: list[tuple[datetime, int, LimitUse]] = []
    for each in promised:
        begin, over = max(each.start, start), min(each.end, end)
        if begin < over:
            taken = use_with_fallback(
                *(_use_of(item, book, listings, counter) for item in (each.machines, each.fallback))
            )
            changes += [(begin, 1, taken), (over, -1, taken)]
    held: dict[str, int] = {}
    peak: dict[str, int] = {}
    # What ends at a moment is free for what begins then.
    for _, sign, taken in sorted(changes, key=lambda change: change[:2]):
        for name, amount in taken.items():
            held[name] = held.get(name, 0) + sign * amount
            peak[name] = max(peak.get(name, 0), held[name])
    return {name: amount for name, amount in sorted(peak.items()) if amount}


def _use_of(
    item: RunningMachines | None, book: PriceBook, listings: Mapping[str, Sequence[OfferListing]], counter: LimitCounter
) -> LimitUse:
    part = None if item is None else _part(item, book, listings)
    return {} if item is None or part is None else counter.use_of_parts((part,), item.team)


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
    listing = min(listings_there, key=lambda listing: (listing.offer.zone != item.zone, listing.name), default=None)
    if listing is None:
        offer = Offer(
            item.cloud, item.region, item.zone, item.instance_type, item.market, _FREE, "not for sale any more", None
        )
        listing = OfferListing(offer, machine, region, accelerator, _FREE, None)
    return GangPart(listing.offer, machine, item.machines, listing)
