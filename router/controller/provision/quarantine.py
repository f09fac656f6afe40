"""Avoid pools for a while that interrupted or lost machines: longer each time, forgotten in a day.

Under a policy that models availability, the policy decides when to try such pools again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pricing.offers import Offer
from pricing.places import Market
from router.controller.context import ControllerContext
from router.faults.fault import FaultKind
from router.planning.find.candidate import Candidate
from router.spot.live.pool_backoff import BACKOFF_MEMORY, compute_backoff_end, is_backing_off, models_availability
from router.spot.policies.interface import Policy
from router.state.records import ANY, Attempt, NodeRecord, Shortage

# Time enough to enable a region, and too short to forget that it is worth a try.
REGION_OFF_FOR = timedelta(hours=6)
UNHEALTHY = FaultKind.MACHINE_FAULT.value


def quarantine(site: ControllerContext, attempt: Attempt, ranks: Collection[int], why: str) -> None:
    """Remember the pools of these ranks as short; several machines of one pool count once."""
    quarantine_all(site, [(attempt, site.store.attempts.nodes(attempt.id), ranks, why)])


def quarantine_all(
    site: ControllerContext, losses: Iterable[tuple[Attempt, Sequence[NodeRecord], Collection[int], str]]
) -> None:
    """Remember the pools of many gangs as short: attempt, its machines, the ranks and the reason of each.

    A further loss in a pool that is avoided already counts as the same occasion.
    """
    now = site.clock()
    pools: dict[ShortagePool, tuple[Attempt, str]] = {}
    for attempt, nodes, ranks, why in losses:
        for node in nodes:
            if node.rank in ranks:
                pool = (attempt.cloud, attempt.region, node.zone, node.instance_type, node.market)
                pools.setdefault(pool, (attempt, why))
    if not pools:
        return
    recent: dict[ShortagePool, list[Shortage]] = {}
    for shortage in site.store.shortages.found_since(now - BACKOFF_MEMORY):
        recent.setdefault(_pool(shortage), []).append(shortage)
    new = []
    for pool, (attempt, why) in sorted(pools.items(), key=str):
        closures = [(shortage.at, shortage.until) for shortage in recent.get(pool, ())]
        until = compute_backoff_end(closures, now, site.deploy.timeouts.quarantine)
        if until is not None:
            new.append(Shortage(*pool, attempt.machines, now, until, why))
    site.store.shortages.remember(*new)


def mark_short(site: ControllerContext, cloud: str, region: str, machines: Sequence[NodeRecord], why: str) -> None:
    """Remember the pools of a gang as short for a while, because it could not be obtained or even requested."""
    now = site.clock()
    until = now + site.deploy.timeouts.shortage
    pools = sorted({(one.zone, one.instance_type, one.market) for one in machines}, key=str)
    site.store.shortages.remember(*(Shortage(cloud, region, *pool, len(machines), now, until, why) for pool in pools))


def mark_off(site: ControllerContext, attempt: Attempt, region: str, why: str) -> None:
    """Remember that the account can have nothing of a region of the attempt's cloud, or of all of it (``ANY``).

    Plans and ``apply`` do not go by a whole cloud: somebody may have put it right.
    """
    now = site.clock()
    until = now + (site.deploy.timeouts.shortage if region == ANY else REGION_OFF_FOR)
    rows = (Shortage(attempt.cloud, region, None, ANY, m, attempt.machines, now, until, why) for m in Market)
    site.store.shortages.remember(*rows)


ShortagePool = tuple[str, str, str | None, str, Market]


def _pool(shortage: Shortage) -> ShortagePool:
    return shortage.cloud, shortage.region, shortage.zone, shortage.instance_type, shortage.market


class ShortPools:
    """The pools that are remembered as short, however often each was."""

    def __init__(self, shortages: Iterable[Shortage]) -> None:
        pools = {_pool(shortage) for shortage in shortages}
        # A shortage of a whole region is one of each zone, and an offer for a region may come from any zone.
        self._pools = pools | {(cloud, region, ANY, kind, market) for cloud, region, _, kind, market in pools}

    def has(self, candidate: Candidate) -> bool:
        """Return whether a part of the candidate's gang would come from one of these pools."""
        return any(self._has(part.offer) for part in candidate.parts)

    def _has(self, offer: Offer) -> bool:
        kind, market = offer.instance_type, offer.market
        if {(offer.cloud, region, None, ANY, market) for region in (offer.region, ANY)} & self._pools:
            return True
        if offer.zone is None:
            return (offer.cloud, offer.region, ANY, kind, market) in self._pools
        zones = (None, offer.zone)
        return any((offer.cloud, offer.region, zone, kind, market) in self._pools for zone in zones)


@dataclass(frozen=True, slots=True)
class CurrentShortages:
    """The pools that are short at one moment: ``usual`` ones, and ``modelled`` for policies that model availability."""

    usual: ShortPools
    modelled: ShortPools

    def under(self, policy: Policy) -> ShortPools:
        return self.modelled if models_availability(policy) else self.usual


def current_shortages(site: ControllerContext) -> CurrentShortages:
    """Return the pools that are short now.

    Pools of unhealthy machines, and regions and clouds that cannot be had at all, are avoided under every policy.
    """
    now, first = site.clock(), site.deploy.timeouts.quarantine
    known = site.store.shortages.in_force(now)
    modelled = [
        s
        for s in known
        if s.why == UNHEALTHY or s.instance_type == ANY or is_backing_off((s.at, s.until), now, first, modelled=True)
    ]
    return CurrentShortages(ShortPools(known), ShortPools(modelled))
