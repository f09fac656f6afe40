"""Where a gang may be made: the plan's own place, then its next choices, each as machines with prices and ceilings.
Pure.

A next choice stands for the whole rest of the job; its ceiling on spot is 125 % of the price it was planned with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.planning.plan import Alternative, JobSummary, Line, Plan
from router.running.orders import Order
from router.state.records import Shortage

_SPOT_CEILING = Fraction(5, 4)


@dataclass(frozen=True, slots=True)
class Seat:
    """One machine to be made; prices are for it alone."""

    zone: str | None
    instance_type: str
    market: Market
    accelerator: str
    accelerators: int
    usd_per_hour: UsdPerHour
    max_usd_per_hour: UsdPerHour


@dataclass(frozen=True, slots=True)
class Choice:
    """A gang in one place for one stretch of time. ``rank`` 0 is the plan's own; seats are in the order of the gang's
    ranks."""

    rank: int
    cloud: str
    region: str
    seats: tuple[Seat, ...]
    start: datetime
    end: datetime

    @property
    def usd_per_hour(self) -> UsdPerHour:
        """Of the whole gang, as planned."""
        return UsdPerHour(sum(seat.usd_per_hour.nanos for seat in self.seats))

    @property
    def max_usd_per_hour(self) -> UsdPerHour:
        """Of the whole gang, at its ceilings."""
        return UsdPerHour(sum(seat.max_usd_per_hour.nanos for seat in self.seats))

    @property
    def at_risk_usd(self) -> Usd:
        """The most that the stretch may cost."""
        return self.max_usd_per_hour.over(self.end - self.start)

    @property
    def place(self) -> str:
        """For a person: ``aws/us-east-1 4 x p5.48xlarge spot``."""
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


def choices_of(order: Order, plan: Plan, tries: int) -> tuple[Choice, ...]:
    """At most ``tries`` places, best first: the order itself, then the job's alternatives that can be ordered, cheapest
    plan first, none twice."""
    found = [_planned(order)]
    summary = next((job for job in plan.jobs if job.job == order.job), None)
    for alternative in _usable(summary):
        choice = _next(order, alternative, len(found))
        if all(not _same(choice, other) for other in found):
            found.append(choice)
    return tuple(found[:tries])


def most_at_risk(choices: Iterable[Choice]) -> Usd:
    """The most that one gang may cost, wherever it is made in the end."""
    return max((choice.at_risk_usd for choice in choices), default=Usd(0))


def short_of(choice: Choice, shortages: Sequence[Shortage]) -> Shortage | None:
    """The remembered shortage that this choice would run into, None where there is none."""
    for shortage in shortages:
        for seat in choice.seats:
            same = (choice.cloud, choice.region, seat.instance_type, seat.market)
            pool = (shortage.cloud, shortage.region, shortage.instance_type, shortage.market)
            if same == pool and (shortage.zone is None or seat.zone in (None, shortage.zone)):
                return shortage
    return None


def with_zones(choice: Choice, zones: Mapping[str, str]) -> Choice:
    """The same with a zone on every machine, by instance type. KeyError names a type without one."""
    seats = tuple(
        seat if seat.zone is not None else Seat(
            zones[seat.instance_type], seat.instance_type, seat.market, seat.accelerator, seat.accelerators,
            seat.usd_per_hour, seat.max_usd_per_hour,
        )
        for seat in choice.seats
    )  # fmt: skip
    return Choice(choice.rank, choice.cloud, choice.region, seats, choice.start, choice.end)


def zones_sold(choice: Choice, book: PriceBook) -> Mapping[str, str]:
    """For each instance type of the choice, the first zone in which the book sells it; types without one are left
    out."""
    zones: dict[str, str] = {}
    for offer in sorted(book.offers, key=lambda offer: offer.zone or ""):
        if offer.zone and (offer.cloud, offer.region) == (choice.cloud, choice.region):
            zones.setdefault(offer.instance_type, offer.zone)
    return {seat.instance_type: zones[seat.instance_type] for seat in choice.seats if seat.instance_type in zones}


def _planned(order: Order) -> Choice:
    first = order.lines[0]
    # Rank 0 leads the gang, so it sits where no spot machine is taken from under it.
    lines = sorted(order.lines, key=lambda line: (line.market == Market.SPOT.value, line.zone or ""))
    seats = tuple(seat for line in lines for seat in _seats_of(line))
    return Choice(0, first.cloud, first.region, seats, order.start, order.end)


def _seats_of(line: Line) -> Iterator[Seat]:
    each, most = (UsdPerHour(rate.nanos // line.machines) for rate in (line.usd_per_hour, line.max_usd_per_hour))
    for _ in range(line.machines):
        yield Seat(
            line.zone, line.instance_type, Market(line.market), line.accelerator, line.accelerators // line.machines,
            each, most,
        )  # fmt: skip


def _usable(summary: JobSummary | None) -> Iterator[Alternative]:
    if summary is None:
        return
    for alternative in summary.alternatives:
        if alternative.provisionable and not alternative.lacks:
            yield alternative


def _next(order: Order, alternative: Alternative, rank: int) -> Choice:
    each = UsdPerHour(-(-alternative.usd_per_hour.nanos // alternative.machines))
    market = Market(alternative.market)
    most = each.scaled(_SPOT_CEILING) if market is Market.SPOT else each
    seat = Seat(
        alternative.zone, alternative.instance_type, market, alternative.accelerator,
        alternative.accelerators // alternative.machines, each, most,
    )  # fmt: skip
    end = max(alternative.finish or order.end, order.end)
    return Choice(rank, alternative.cloud, alternative.region, (seat,) * alternative.machines, order.start, end)


def _same(one: Choice, other: Choice) -> bool:
    return (one.cloud, one.region, sorted(map(_pool, one.seats))) == (
        other.cloud, other.region, sorted(map(_pool, other.seats)),
    )  # fmt: skip


def _pool(seat: Seat) -> tuple[str, str, str]:
    return (seat.zone or "", seat.instance_type, seat.market.value)
