"""List the offers as we would buy them, by accelerator: with discounts, allowed clouds and reservations applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from pricing.book import PriceBook
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from pricing.problems import InvalidInputError
from router.jobs.limits import Commitment, Discount, Limit, Limits, Maintenance, Reservation, ReservedCost

PlaceRule = Limit | Maintenance | Commitment
"""A rule of the limits file that names machines by place, family and type."""


@dataclass(frozen=True, slots=True)
class OfferListing:
    """An offer as we would buy it.

    ``offer.usd_per_hour`` is the marginal price of a machine (zero on a reservation), ``amortised`` its real cost
    (None: not known; zero of what is sunk: ``cost`` says which); ``cap`` is how many machines can be had at once, None
    unknown (taken as unlimited). A reservation is available from ``start`` until ``until``. In ``closed`` windows
    nobody may hold machines of it.
    """

    offer: Offer
    machine: Machine
    region: Region
    accelerator: Accelerator
    amortised: UsdPerHour | None
    cap: int | None
    reservation: str = ""
    cost: ReservedCost | None = None
    start: datetime | None = None
    until: datetime | None = None
    closed: tuple[Maintenance, ...] = ()

    @property
    def name(self) -> str:
        """Return a name such as ``aws/us-east-1/p5.48xlarge/spot``.

        It holds the zone where that is known; a reservation carries its own name.
        """
        place = "/".join(p for p in (self.offer.cloud, self.offer.region, self.offer.zone) if p)
        own = f"({self.reservation})" if self.reservation else ""
        return f"{place}/{self.offer.instance_type}/{self.offer.market.value}{own}"

    def covers(self, start: datetime, end: datetime) -> bool:
        """Return whether the machines are available from ``start`` until ``end``."""
        within = (self.start is None or self.start <= start) and (self.until is None or end <= self.until)
        return within and not any(window.start < end and start < window.until for window in self.closed)


def listings_by_accelerator(book: PriceBook, limits: Limits) -> Mapping[str, tuple[OfferListing, ...]]:
    """Return every listing, sorted by offer key, under its accelerator's name.

    Raises InvalidInputError when a reservation names a machine or region that the book does not have.
    """
    listings: dict[str, list[OfferListing]] = {}
    for offer in book.offers:
        listing = _offer_listing(offer, book, limits)
        if listing is not None:
            listings.setdefault(listing.machine.accelerator, []).append(listing)
    for reservation in limits.reservations:
        listing = _reservation_listing(reservation, book)
        listings.setdefault(listing.machine.accelerator, []).append(listing)
    return {
        name: tuple(sorted(_with_maintenance(rows, limits), key=lambda r: (r.offer.key, r.reservation)))
        for name, rows in listings.items()
    }


def stated_dates(limits: Limits) -> list[datetime]:
    """Return when anything that the limits file states begins or ends: reservations, maintenance, commitments."""
    entries: tuple[Reservation | Maintenance | Commitment, ...]
    entries = (*limits.reservations, *limits.maintenance, *limits.commitments)
    return [edge for entry in entries for edge in (entry.start, entry.until) if edge is not None]


def _with_maintenance(listings: Sequence[OfferListing], limits: Limits) -> Sequence[OfferListing]:
    """Return the listings with the windows in which each is closed, in order of time."""
    if not limits.maintenance:
        return listings
    windows = sorted(limits.maintenance, key=lambda window: (window.start, window.until, window.name))
    return [replace(row, closed=tuple(w for w in windows if is_named_by(w, row))) for row in listings]


def is_named_by(rule: PlaceRule, listing: OfferListing) -> bool:
    """Return whether the rule's place, family and machine type are the listing's; what it leaves out fits any.

    A rule of a zone names what is sold in that zone.
    """
    offer = listing.offer
    if rule.family and listing.machine.family not in rule.family:
        return False
    pairs = (
        (rule.cloud, offer.cloud),
        (rule.region, offer.region),
        (None if isinstance(rule, Commitment) else rule.zone, offer.zone),
        (rule.instance_type, offer.instance_type),
    )
    return all(wanted is None or wanted == actual for wanted, actual in pairs)


def commits_to(commitment: Commitment, listing: OfferListing) -> bool:
    """Return whether the commitment covers these machines: on demand, and nothing that it names is another."""
    bought = listing.offer.market is Market.ON_DEMAND
    accelerator = commitment.accelerator in (None, listing.machine.accelerator)
    return bought and accelerator and is_named_by(commitment, listing)


def cover_pool_of(limits: Limits, listing: OfferListing) -> int | None:
    """Return the number of the first commitment that covers the machines; None where none does."""
    return next((n for n, item in enumerate(limits.commitments) if commits_to(item, listing)), None)


def _offer_listing(offer: Offer, book: PriceBook, limits: Limits) -> OfferListing | None:
    machine = book.machine(offer.cloud, offer.instance_type)
    region = book.region(offer.region_id)
    accelerator = book.accelerator(machine.accelerator) if machine else None
    if machine is None or region is None or accelerator is None:
        return None
    discount = _best_discount(limits.discounts, machine, offer.market)
    price = offer.usd_per_hour if discount is None else _discounted(offer.usd_per_hour, discount)
    cap = offer.machines_cap if offer.machines_cap is not None else limits.default_cap_machines
    return OfferListing(replace(offer, usd_per_hour=price), machine, region, accelerator, price, cap)


def _discounted(price: UsdPerHour, discount: Discount) -> UsdPerHour:
    return price.scaled(1 - Fraction(discount.percent) / 100)


def _best_discount(discounts: tuple[Discount, ...], machine: Machine, market: Market) -> Discount | None:
    """Return the most specific discount that applies (family before market before cloud alone); they do not add up."""
    fitting = [
        d
        for d in discounts
        if d.cloud == machine.cloud and d.family in (None, machine.family) and d.market in (None, market)
    ]
    return max(fitting, key=lambda d: (d.family is not None, d.market is not None, d.percent), default=None)


def _reservation_listing(reservation: Reservation, book: PriceBook) -> OfferListing:
    machine = book.machine(reservation.cloud, reservation.instance_type)
    region = book.region(RegionId(reservation.cloud, reservation.region))
    accelerator = book.accelerator(machine.accelerator) if machine else None
    if machine is None or region is None or accelerator is None:
        missing = "region" if region is None else "instance type"
        raise InvalidInputError.single(
            f"the price book has no such {missing}", where="limits", field=f"reservations.{reservation.name}"
        )
    offer = Offer(
        cloud=reservation.cloud,
        region=reservation.region,
        zone=reservation.zone,
        instance_type=reservation.instance_type,
        market=Market.RESERVED,
        usd_per_hour=UsdPerHour(0),
        source=f"reservation {reservation.name}",
        as_of=book.as_of.date(),
        machines_cap=reservation.machines,
        price_basis="reservation",
    )
    amortised = UsdPerHour(0) if reservation.sunk else reservation.usd_per_hour
    return OfferListing(
        offer,
        machine,
        region,
        accelerator,
        amortised,
        reservation.machines,
        reservation.name,
        reservation.cost,
        reservation.start,
        reservation.until,
    )


Spread = tuple[tuple[OfferListing, int], ...]


def spreads(listings: Iterable[OfferListing], accelerators: int) -> Iterator[Spread]:
    """Yield how many machines to take in each zone, the cheapest zones first.

    There is one spread for every region, machine type and market where no single zone has room for the gang but all
    together do.
    """
    by_type: dict[tuple[str, str, str, str], list[OfferListing]] = {}
    for listing in listings:
        offer = listing.offer
        if offer.zone is not None and accelerators % listing.machine.accelerator_count == 0:
            by_type.setdefault((offer.cloud, offer.region, offer.instance_type, offer.market), []).append(listing)
    for _, zones in sorted(by_type.items()):
        machines = accelerators // zones[0].machine.accelerator_count
        taken = _spread_over_zones(zones, machines)
        if len(taken) > 1:
            yield taken


def _spread_over_zones(zones: Sequence[OfferListing], machines: int) -> Spread:
    """Return the machines by zone; nothing where one zone is enough (unknown capacity is), or all are too little."""
    if any(zone.cap is None or zone.cap >= machines for zone in zones):
        return ()
    taken: list[tuple[OfferListing, int]] = []
    for zone in sorted(zones, key=lambda z: (z.offer.usd_per_hour, z.name)):
        count = min(zone.cap or 0, machines)
        if count:
            taken.append((zone, count))
            machines -= count
    return tuple(taken) if machines == 0 else ()
