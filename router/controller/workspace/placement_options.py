"""Build the placements where a gang may be provisioned, each as machines with prices and ceilings. Pure.

The first is the plan's own placement, followed by its fallbacks. A fallback stands for the whole remaining job; its
ceiling on spot is 125 % of the price it was planned with. It is offered only while it is for sale within its ceiling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from pricing.places import Market, RegionId
from router.controller.plans import Order
from router.jobs.experience import Experience
from router.jobs.spec import Job
from router.jobs.speed import bus_bandwidth
from router.planning.document.costing import day_of
from router.planning.document.plan import Alternative, JobSummary, Line, Plan
from router.planning.find.candidate import Candidate
from router.planning.find.listings import OfferListing
from router.state.records import ANY, NodeRecord, Shortage

_SPOT_CEILING = Fraction(5, 4)
_DIGEST_CHARACTERS = 12
_FREE = UsdPerHour(0)
# The attempt, rank and name of a machine that belongs to no attempt yet.
_NO_ATTEMPT = ("", 0, "")


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """A gang in one place for one span of time.

    ``rank`` 0 is the plan's own placement; seats are machines without an attempt, in the order of the gang's ranks.
    Their on-demand prices are filled in by :func:`fill_list_prices`. On a reservation ``usd_per_hour`` is the amortised
    price, and ``reservation_cost`` says what is known of it (amortised, sunk, unknown).
    """

    rank: int
    cloud: str
    region: str
    seats: tuple[NodeRecord, ...]
    start: datetime
    end: datetime

    @property
    def usd_per_hour(self) -> UsdPerHour:
        return UsdPerHour(sum(seat.usd_per_hour.nanos for seat in self.seats))

    @property
    def max_usd_per_hour(self) -> UsdPerHour:
        return UsdPerHour(sum(seat.max_usd_per_hour.nanos for seat in self.seats))

    @property
    def at_risk_usd(self) -> Usd:
        """Return the most that the placement may cost."""
        return self.max_usd_per_hour.over(self.end - self.start)

    @property
    def place(self) -> str:
        """Return the placement for a person: ``aws/us-east-1 4 x p5.48xlarge spot``."""
        kinds: dict[tuple[str | None, str, Market], int] = {}
        for seat in self.seats:
            key = (seat.zone, seat.instance_type, seat.market)
            kinds[key] = kinds.get(key, 0) + 1
        zones = {zone for zone, _, _ in kinds}
        where = next(iter(zones)) if len(zones) == 1 else None
        parts = [
            f"{count} x {kind} {market.value}" + (f" in {zone}" if where is None and zone else "")
            for (zone, kind, market), count in kinds.items()
        ]
        return f"{self.cloud}/{where or self.region} {' + '.join(parts)}"


def placements_of(
    order: Order, plan: Plan, job: Job, market: Mapping[str, Sequence[OfferListing]], tries: int
) -> tuple[GangPlacement, ...]:
    """Return at most ``tries`` placements, best first and without duplicates.

    The order's own placement comes first, then the job's alternatives that can be ordered, cheapest plan first.
    ``market``: what is for sale now, by accelerator. Left out are alternatives that are not in it within their
    ceilings, and those that the plan does not describe machine by machine (an on-demand core with a spot rest, a gang
    over several zones or of two machine types).
    """
    found = [_planned_placement(order)]
    summary = next((summary for summary in plan.jobs if summary.job == order.job), None)
    for alternative in summary.alternatives if summary is not None else ():
        choice = _fallback_placement(order, plan, job, alternative, len(found))
        if choice is None or _machines(choice) in map(_machines, found):
            continue
        if _is_for_sale(choice.seats[0], choice, market.get(alternative.accelerator, ()), job):
            found.append(choice)
    return tuple(found[:tries])


def order_at_risk(order: Order, plan: Plan, summary: JobSummary, job: Job | None) -> Usd:
    """Return the most that a gang may cost in the plan's places, however many of them are tried.

    ``summary`` is the job's in the plan. Where the job itself is not known (None), no place of it is left out.
    """
    own = _planned_placement(order)
    fallbacks = (_fallback_placement(order, plan, job, alternative, 1) for alternative in summary.alternatives)
    others = [choice for choice in fallbacks if choice is not None and _machines(choice) != _machines(own)]
    return max(order.at_risk_usd, maximum_cost([own, *others]))


def placement_from(candidate: Candidate, start: datetime, end: datetime) -> GangPlacement:
    """Return the placement of a candidate from now on, with ceilings as for fallbacks.

    ``rank`` is 0, because the candidate is a plan of its own.
    """
    seats = tuple(
        NodeRecord(
            *_NO_ATTEMPT,
            part.offer.zone,
            part.offer.instance_type,
            part.offer.market,
            part.machine.accelerator,
            part.machine.accelerator_count,
            part.offer.usd_per_hour if part.listing.cost is None else part.listing.amortised or _FREE,
            _ceiling(part.offer.usd_per_hour, part.offer.market),
            price_as_of=day_of(part.offer),
            price_source=part.offer.source,
            reservation_cost=part.listing.cost or "",
        )
        for part in sorted(candidate.parts, key=lambda p: (p.offer.market is Market.SPOT, p.offer.zone or ""))
        for _ in range(part.machines)
    )
    return GangPlacement(0, candidate.region.cloud, candidate.region.region, seats, start, end)


def maximum_cost(choices: Iterable[GangPlacement]) -> Usd:
    """Return the most that one gang may cost, wherever and however often it is provisioned.

    At each moment the gang is in one place, so it costs at most as much as the most expensive placement whose time is
    not over.
    """
    unfinished = sorted(choices, key=lambda choice: choice.end)
    total, at = Usd(0), min((choice.start for choice in unfinished), default=None)
    for number, choice in enumerate(unfinished):
        assert at is not None
        if choice.end > at:
            total += max(later.max_usd_per_hour for later in unfinished[number:]).over(choice.end - at)
            at = choice.end
    return total


def blocking_shortage(choice: GangPlacement, shortages: Sequence[Shortage]) -> Shortage | None:
    """Return the remembered shortage that this placement would run into, None where there is none."""
    for shortage in shortages:
        for seat in choice.seats:
            kind = ANY if shortage.instance_type == ANY else seat.instance_type
            same = (choice.cloud, choice.region, kind, seat.market)
            pool = (shortage.cloud, shortage.region, shortage.instance_type, shortage.market)
            if same == pool and (shortage.zone is None or seat.zone in (None, shortage.zone)):
                return shortage
    return None


def fill_zones(choice: GangPlacement, zones: Mapping[str, str]) -> GangPlacement:
    """Return the placement with a zone on every machine, by instance type. KeyError names a type without one."""
    seats = tuple(
        seat if seat.zone is not None else replace(seat, zone=zones[seat.instance_type]) for seat in choice.seats
    )
    return replace(choice, seats=seats)


def fill_list_prices(choice: GangPlacement, book: PriceBook) -> GangPlacement:
    """Return the placement with each machine's on-demand list price there, where the book has it."""

    def priced(seat: NodeRecord) -> NodeRecord:
        price = book.on_demand(RegionId(choice.cloud, choice.region), seat.zone, seat.instance_type)
        return replace(seat, on_demand_usd_per_hour=price)

    return replace(choice, seats=tuple(priced(seat) for seat in choice.seats))


def fabric_of(choice: GangPlacement, book: PriceBook) -> str:
    """Return the fabric that joins all machine types of the gang; none where they differ or it is unknown."""
    machines = [book.machine(choice.cloud, name) for name in {seat.instance_type for seat in choice.seats}]
    fabrics = {machine.fabric if machine is not None else None for machine in machines}
    return (fabrics.pop() if len(fabrics) == 1 else None) or "none"


def assumed_bandwidth(choice: GangPlacement, book: PriceBook, experience: Experience) -> float | None:
    """Return the bus bandwidth in GB/s that plans assume over the gang, of its slowest type; None: unknown."""
    kinds = {(seat.instance_type, seat.zone) for seat in choice.seats}
    machines = [(book.machine(choice.cloud, name), zone) for name, zone in kinds]
    known = [None if m is None else bus_bandwidth(experience.machine(m, choice.region, zone)) for m, zone in machines]
    found = [speed for speed in known if speed is not None]
    return min(found) if len(found) == len(known) and len(choice.seats) > 1 else None


def zones_with_offers(choice: GangPlacement, book: PriceBook, otherwise: str | None = None) -> Mapping[str, str]:
    """Return for each instance type the first zone where the book sells it on every market that the placement needs.

    ``otherwise`` is used where the book knows no zone; types that remain without one are left out. Several types share
    a zone: the first that sells all of those of which the book knows zones.
    """
    sold: dict[tuple[str, str], set[Market]] = {}
    for offer in book.offers:
        if offer.zone and (offer.cloud, offer.region) == (choice.cloud, choice.region):
            sold.setdefault((offer.instance_type, offer.zone), set()).add(offer.market)
    zones: dict[str, set[str]] = {}
    for instance_type in dict.fromkeys(seat.instance_type for seat in choice.seats):
        needed = {seat.market for seat in choice.seats if seat.instance_type == instance_type}
        zones[instance_type] = {
            zone for (name, zone), markets in sold.items() if name == instance_type and needed <= markets
        }
    known = [found for found in zones.values() if found]
    shared = set.intersection(*known) if known else set()
    zone = min(shared, default=otherwise if len(known) < 2 else None)
    return {} if zone is None else dict.fromkeys(zones, zone)


def _planned_placement(order: Order) -> GangPlacement:
    first = order.lines[0]
    # Rank 0 leads the gang, so it is placed where no spot machine can be interrupted.
    lines = sorted(order.lines, key=lambda line: (line.market == Market.SPOT.value, line.zone or ""))
    seats = tuple(seat for line in lines for seat in _machines_of(line))
    return GangPlacement(0, first.cloud, first.region, seats, order.start, order.end)


def _machines_of(line: Line) -> Iterator[NodeRecord]:
    reserved = line.market == Market.RESERVED.value
    rate = (line.amortised_usd_per_hour or _FREE) if reserved else line.usd_per_hour
    prices, ceilings = (_split_price(one, line.machines) for one in (rate, line.max_usd_per_hour))
    for price, ceiling in zip(prices, ceilings, strict=True):
        yield NodeRecord(
            *_NO_ATTEMPT,
            line.zone,
            line.instance_type,
            Market(line.market),
            line.accelerator,
            line.accelerators // line.machines,
            price,
            ceiling,
            price_as_of=line.price_as_of,
            price_source=line.price_source,
            # Older plans do not name the cost of a reservation; theirs is always amortised.
            reservation_cost=line.reservation_cost or ("amortised" if reserved else ""),
        )


def _split_price(rate: UsdPerHour, machines: int) -> list[UsdPerHour]:
    """Return prices of single machines that add up to the price of all."""
    return [UsdPerHour(share.nanos) for share in Usd(rate.nanos).split([1] * machines)]


def _fallback_placement(
    order: Order, plan: Plan, job: Job | None, alternative: Alternative, rank: int
) -> GangPlacement | None:
    market, spot = Market(alternative.market), alternative.market == Market.SPOT
    if not alternative.provisionable or alternative.lacks or alternative.finish is None or alternative.mix:
        return None
    if spot and job is not None and job.gang.on_demand_share > 0:
        return None  # The core has other machines at another price, which an alternative does not describe.
    reserved = market is Market.RESERVED
    price_of_all = (alternative.amortised_usd_per_hour or _FREE) if reserved else alternative.usd_per_hour
    ceiling = _ceiling(_FREE, market) if reserved else None
    seats = tuple(
        NodeRecord(
            *_NO_ATTEMPT,
            alternative.zone,
            alternative.instance_type,
            market,
            alternative.accelerator,
            alternative.accelerators // alternative.machines,
            price,
            ceiling or _ceiling(price, market),
            price_as_of=plan.book_as_of.date().isoformat(),
            price_source=f"price book {plan.book_digest[:_DIGEST_CHARACTERS]}",
            reservation_cost=(alternative.reservation_cost or "unknown") if reserved else "",
        )
        for price in _split_price(price_of_all, alternative.machines)
    )
    asked = None if job is None else job.earliest_start
    earliest = plan.as_of if asked is None else max(asked.at(plan.as_of), plan.as_of)
    # The gang needs no longer than in the plan, whenever it begins.
    end = max(order.end, order.start + (alternative.finish - earliest))
    return GangPlacement(rank, alternative.cloud, alternative.region, seats, order.start, end)


def _ceiling(price: UsdPerHour, market: Market) -> UsdPerHour:
    return price.scaled(_SPOT_CEILING) if market is Market.SPOT else price


def _is_for_sale(seat: NodeRecord, choice: GangPlacement, listings: Sequence[OfferListing], job: Job) -> bool:
    fitting = [
        listing
        for listing in listings
        if (listing.offer.cloud, listing.offer.region) == (choice.cloud, choice.region)
        and (listing.offer.instance_type, listing.offer.market) == (seat.instance_type, seat.market)
        and (seat.zone is None or listing.offer.zone in (None, seat.zone))
    ]
    # A plan spreads a gang over zones only where no single zone has room for it.
    if not job.gang.same_zone and seat.zone is not None:
        fitting = [listing for listing in fitting if listing.cap is None or listing.cap >= len(choice.seats)]
    return any(
        listing.offer.usd_per_hour <= seat.max_usd_per_hour and listing.covers(choice.start, choice.end)
        for listing in fitting
    )


def _machines(placement: GangPlacement) -> tuple[str, str, list[tuple[str, str, str]]]:
    seats = sorted((seat.zone or "", seat.instance_type, seat.market.value) for seat in placement.seats)
    return placement.cloud, placement.region, seats
