"""Split gangs over two machine types of one accelerator family (design note rules-of-the-plan). Pure.

Both types are sold in one place and market, and have the same fabric and as many accelerators a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pricing.machines import MIXABLE_FABRICS
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.limit_kinds import LimitPerMachine
from router.planning.find.listings import OfferListing, Spread, cover_pool_of

MOST_SPLITS = 4  # of one pair of types


@dataclass(frozen=True, slots=True)
class MachinePair:
    """Two listings whose machines may form one gang; ``cheaper`` costs no more an hour, ``other`` makes up the rest."""

    cheaper: OfferListing
    other: OfferListing

    @property
    def listings(self) -> tuple[OfferListing, OfferListing]:
        """Return both, the cheaper one first."""
        return self.cheaper, self.other

    @property
    def accelerators(self) -> frozenset[str]:
        """Return the names of both types' accelerators; one where they are the same."""
        return frozenset(listing.machine.accelerator for listing in self.listings)


def machine_pairs(listings: Iterable[OfferListing], limits: Limits) -> tuple[MachinePair, ...]:
    """Return every pair of listings of which a gang may be made, in the order of their names."""
    alike: dict[tuple[object, ...], list[OfferListing]] = {}
    for listing in listings:
        offer, machine = listing.offer, listing.machine
        if machine.fabric is not None and machine.fabric in MIXABLE_FABRICS.get(offer.cloud, frozenset()):
            place = (offer.cloud, offer.region, offer.zone, offer.market)
            kind = (listing.accelerator.family, machine.accelerator_count, machine.fabric)
            alike.setdefault((*place, *kind), []).append(listing)
    found = [
        _pair(one, two)
        for mixable in alike.values()
        for one, two in combinations(mixable, 2)
        if one.offer.instance_type != two.offer.instance_type and not _of_two_pools(one, two, limits)
    ]
    return tuple(sorted(found, key=lambda pair: (pair.cheaper.name, pair.other.name)))


def _pair(first: OfferListing, second: OfferListing) -> MachinePair:
    cheaper, other = sorted(
        (first, second), key=lambda listing: (listing.offer.usd_per_hour, listing.offer.instance_type, listing.name)
    )
    return MachinePair(cheaper, other)


def _of_two_pools(first: OfferListing, second: OfferListing, limits: Limits) -> bool:
    """Return whether two different commitments pay for the types: the plan counts one for a gang."""
    pools = {cover_pool_of(limits, listing) for listing in (first, second)} - {None}
    return len(pools) > 1


def mixed_gangs(
    pair: MachinePair, machines: int, uses: Sequence[Sequence[LimitPerMachine]], running: int | None = None
) -> Iterator[Spread]:
    """Yield gangs of ``machines`` machines of a pair: a few, from the most of the cheaper type to the fewest.

    ``uses`` are what a machine of each listing takes of limits. Each gang keeps all limits by itself. Where nothing
    bounds the cheaper type, it alone is no dearer and no slower: then there is no mix but the one that runs now, with
    ``running`` machines of the cheaper type.
    """
    bounds = _bounds(machines, uses)
    if bounds is None:
        return
    min_machines, max_machines = bounds.min_machines, bounds.max_machines
    chosen = set(_spaced(min_machines, max_machines)) if bounds.of_use else set()
    if running is not None and min_machines <= running <= max_machines:
        chosen.add(running)
    for count in sorted(chosen, reverse=True):
        yield ((pair.other, machines - count), (pair.cheaper, count))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The fewest and the most machines of the cheaper type, and whether anything limits them (``of_use``)."""

    min_machines: int
    max_machines: int
    of_use: bool


def _bounds(machines: int, uses: Sequence[Sequence[LimitPerMachine]]) -> _Bounds | None:
    """Return the bounds on machines of the cheaper type; None where no split fits.

    With k of them, a limit takes u k + v (n - k): it bounds k from above where u > v, and from below where u < v.
    """
    min_machines, max_machines, bounded = 1, machines - 1, False
    by_limit = [{use.limit.name: use for use in listing} for listing in uses]
    for name in dict.fromkeys(name for listing in by_limit for name in listing):
        of_pair = [listing.get(name) for listing in by_limit]
        limit = next(use.limit for use in of_pair if use is not None)
        cheaper, other = (0 if use is None else use.per_machine for use in of_pair)
        if cheaper is None or other is None:
            return None
        left, slope = limit.amount - other * machines, cheaper - other
        if slope > 0:
            max_machines, bounded = min(max_machines, left // slope), True
        elif slope < 0:
            min_machines = max(min_machines, -(left // -slope))
        elif left < 0:
            return None
    return _Bounds(min_machines, max_machines, bounded) if min_machines <= max_machines else None


def _spaced(first: int, last: int) -> Iterator[int]:
    """Yield whole numbers from ``first`` to ``last``, both included, evenly apart."""
    steps = min(MOST_SPLITS, last - first + 1) - 1
    for step in range(steps + 1):
        yield last - (last - first) * step // max(steps, 1)


def running_split(job: Job, pair: MachinePair) -> int | None:
    """Return how many machines of the cheaper type the job's gang has now; None where it runs on no such mix."""
    placement = job.status.running if job.status is not None else None
    if placement is None or placement.mixed_with is None:
        return None
    have = placement.accelerators_by_type
    if have.keys() != {listing.offer.instance_type for listing in pair.listings}:
        return None
    return have[pair.cheaper.offer.instance_type] // pair.cheaper.machine.accelerator_count
