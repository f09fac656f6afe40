"""Define the kinds of limits that jobs share: quotas, stock, reservations, capacity of offers.

A new kind of limit is a class in :data:`LIMIT_KINDS` and a section of the limits file (:mod:`router.jobs.limits`).
Refusals, mixes of machine types, the program, relaxations, prices and a plan's usage take all kinds alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pricing.machines import Machine
from pricing.places import Market
from router.jobs.limits import Limit, Limits
from router.planning.find.listings import OfferListing, is_named_by

UsageKind = Literal["quota", "stock", "capacity", "reservation"]


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A limit on the use by all gangs: at every instant at most ``amount``, in ``unit``.

    ``cloud``, ``region`` and ``market`` are None where it holds for all of them. ``is_stated`` by the limits file; else
    it comes with an offer.
    """

    name: str
    amount: int
    unit: str
    kind: UsageKind
    cloud: str | None
    region: str | None
    market: str | None
    is_stated: bool = True

    @property
    def allowance(self) -> str:
        """Return in words how much there is."""
        return (
            f"{self.name} allows {self.amount} {self.unit}" if self.is_stated else f"{self.amount} machines to be had"
        )


@dataclass(frozen=True, slots=True)
class LimitPerMachine:
    """A limit that counts a machine, and how much of it one machine takes: None where that is unknown."""

    limit: SharedLimit
    per_machine: int | None


class LimitKind(Protocol):
    """One kind of limit: those that the file states, and those that count a machine."""

    def stated(self, limits: Limits) -> Iterator[SharedLimit]:
        """Yield the limits of this kind in the limits file."""

    def by_machine(self, limits: Limits, listing: OfferListing, team: str) -> Iterator[LimitPerMachine]:
        """Yield the limits of this kind that count a machine of the listing, held by a job of the team."""


class OfferCapacity:
    """The machines of an offer or a reservation that can be had at once."""

    def stated(self, limits: Limits) -> Iterator[SharedLimit]:  # noqa: ARG002 - they come with the offers
        """Yield nothing: capacities are those of the offers that gangs take."""
        yield from ()

    def by_machine(self, limits: Limits, listing: OfferListing, team: str) -> Iterator[LimitPerMachine]:  # noqa: ARG002
        """Yield the capacity of the listing where it is known."""
        if listing.cap is not None:
            offer, kind = listing.offer, _kind_of(listing)
            place = (offer.cloud, offer.region, offer.market.value)
            limit = SharedLimit(f"capacity {listing.name}", listing.cap, "machines", kind, *place, is_stated=False)
            yield LimitPerMachine(limit, 1)


def _kind_of(listing: OfferListing) -> UsageKind:
    return "reservation" if listing.cost else "capacity"


class StatedLimits:
    """The quotas and the stock of the limits file, for the jobs of all teams together."""

    def stated(self, limits: Limits) -> Iterator[SharedLimit]:
        """Yield every limit of the section ``limits``."""
        return map(_stated, limits.limits)

    def by_machine(self, limits: Limits, listing: OfferListing, team: str) -> Iterator[LimitPerMachine]:  # noqa: ARG002
        """Yield the limits of the section that cover the listing."""
        for limit in limits.limits:
            if covers(limit, listing):
                yield LimitPerMachine(_stated(limit), use_by_unit(limit.unit, listing.machine))


def _stated(limit: Limit) -> SharedLimit:
    market = None if limit.market is None else limit.market.value
    return SharedLimit(limit.name, limit.amount, limit.unit, limit.kind, limit.cloud, limit.region, market)


def covers(limit: Limit, listing: OfferListing) -> bool:
    """Return whether the limit counts this listing's machines; a limit without a market counts all but reservations."""
    market = listing.offer.market
    sold_so = market is not Market.RESERVED if limit.market is None else market is limit.market
    return sold_so and limit.accelerator in (None, listing.machine.accelerator) and is_named_by(limit, listing)


def use_by_unit(unit: str, machine: Machine) -> int | None:
    """Return how many of a limit's units one machine takes; None when the machine's figure is unknown."""
    return {"machines": 1, "accelerators": machine.accelerator_count}.get(unit, machine.vcpus)


LIMIT_KINDS: Final[tuple[LimitKind, ...]] = (OfferCapacity(), StatedLimits())


def stated_limits(limits: Limits) -> Iterator[SharedLimit]:
    """Yield the limits of all kinds that the limits file states."""
    for kind in LIMIT_KINDS:
        yield from kind.stated(limits)


def use_by_machine(limits: Limits, listing: OfferListing, team: str) -> tuple[LimitPerMachine, ...]:
    """Return the limits of all kinds that count a machine of the listing, held by a job of the team."""
    return tuple(use for kind in LIMIT_KINDS for use in kind.by_machine(limits, listing, team))
