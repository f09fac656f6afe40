"""Pools that took machines back, or lost them, are left alone for a while: longer each time, forgotten in a day."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from router.planning.candidates import Candidate
from router.running.site import Site
from router.state.records import Attempt, Shortage

_REMEMBERED = timedelta(hours=6)
_LONGEST = timedelta(hours=6)
_MOST_DOUBLINGS = 10


def quarantine(site: Site, attempt: Attempt, ranks: Collection[int], why: str) -> None:
    """Remembers the pools of these ranks as short; of several machines of one pool once."""
    now = site.clock()
    lately = site.store.shortages_since(now - _REMEMBERED)
    nodes = [node for node in site.store.nodes(attempt.id) if node.rank in ranks]
    for zone, instance_type, market in sorted({(n.zone, n.instance_type, n.market) for n in nodes}, key=str):
        pool = (attempt.cloud, attempt.region, zone, instance_type, market)
        times = sum((s.cloud, s.region, s.zone, s.instance_type, s.market) == pool and s.at < now for s in lately)
        length = min(_LONGEST, site.deploy.patience.quarantine * (1 << min(times, _MOST_DOUBLINGS)))
        if length:
            site.store.remember_short(Shortage(*pool, attempt.machines, now, now + length, why))


def is_short(candidate: Candidate, shortages: Sequence[Shortage]) -> bool:
    """Whether a part of the gang would come from a pool that is remembered as short."""
    return any(
        (s.cloud, s.region, s.instance_type, s.market)
        == (part.offer.cloud, part.offer.region, part.offer.instance_type, part.offer.market)
        and (s.zone is None or part.offer.zone in (None, s.zone))
        for part in candidate.parts
        for s in shortages
    )
