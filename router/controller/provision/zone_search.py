"""Find the zones that sell the machines of an offer without a zone, as the cloud itself says for the account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from pricing.places import Market
from providers.errors import ProviderError
from router.controller.context import ControllerContext
from router.controller.workspace.placement_options import GangPlacement, blocking_shortage
from router.state.records import Shortage

# Zones rarely begin to sell a type, and a controller may run for months.
_ASKED_AGAIN = timedelta(days=1)


def placements_by_zone(site: ControllerContext, choice: GangPlacement) -> tuple[GangPlacement, ...]:
    """Return the placement in each zone that sells all of its machines, in the order of the zones' names.

    The placement as it is where it names zones, where its reservation or the network of the deploy file decides, or
    where the cloud does not say. Empty where it says that none sells them.
    """
    if any(seat.zone is not None or seat.market is Market.RESERVED for seat in choice.seats):
        return (choice,)
    settings = site.deploy.cloud(choice.cloud, choice.region)
    subnets = None if settings.network is None else settings.network.subnets
    if subnets is not None and "" in subnets:
        return (choice,)
    zones = _zones_that_sell(site, choice)
    if zones is None:
        return (choice,)
    with_subnets = [zone for zone in zones if subnets is None or zone in subnets]
    # Whoever set the network or the zone knows better than a list.
    first = [settings.zone] if settings.zone is not None else []
    wanted = first or with_subnets
    return tuple(replace(choice, seats=tuple(replace(seat, zone=zone) for seat in choice.seats)) for zone in wanted)


def first_open_placement(
    site: ControllerContext, choice: GangPlacement, shortages: Sequence[Shortage]
) -> GangPlacement:
    """Return the placement in the first zone that sells it and is not remembered as short; as it is without one."""
    places = placements_by_zone(site, choice)
    return next((place for place in places if blocking_shortage(place, shortages) is None), choice)


def _zones_that_sell(site: ControllerContext, choice: GangPlacement) -> tuple[str, ...] | None:
    types = tuple(sorted({seat.instance_type for seat in choice.seats}))
    key, now = (choice.cloud, choice.region, *types), site.wall_clock()
    known = site.sold_zones.get(key)
    if known is None or now - known[1] > _ASKED_AGAIN:
        try:
            fleet = site.fleet(choice.cloud)
            zones = None if fleet is None else fleet.zones_that_sell(choice.region, types)
        except ProviderError:
            # A right may be missing. The cloud then picks a zone, and refuses what it does not sell there.
            zones = None
        known = site.sold_zones[key] = (zones, now)
    return known[0]
