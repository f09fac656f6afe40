"""Spread a gang over several zones of a region, for jobs that say ``same_zone: false``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from router.planning.listings import OfferListing

Spread = tuple[tuple[OfferListing, int], ...]


def spreads(listings: Iterable[OfferListing], accelerators: int) -> Iterator[Spread]:
    """Yield how many machines to take in each zone, the cheapest zones first.

    There is one spread for every region, machine type and market where no single zone has room for the gang but all
    together do.
    """
    groups: dict[tuple[str, str, str, str], list[OfferListing]] = {}
    for listing in listings:
        offer = listing.offer
        if offer.zone is not None and accelerators % listing.machine.accelerator_count == 0:
            groups.setdefault((offer.cloud, offer.region, offer.instance_type, offer.market), []).append(listing)
    for _, zones in sorted(groups.items()):
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
