"""Offers: one machine type for sale in one place at one price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Self

from pricing.machine_images import explain_unmade
from pricing.money import UsdPerHour
from pricing.places import PROVISIONABLE_CLOUDS, Market, RegionId

OfferKey = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class MachinePool:
    """Machines of one type in one place and market; ``zone`` None is the whole region, or not known."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market

    @property
    def key(self) -> OfferKey:
        """Return cloud, region, zone ("" for none), type and market: offers and records of a pool sort by it."""
        return (self.cloud, self.region, self.zone or "", self.instance_type, self.market.value)

    @property
    def region_id(self) -> RegionId:
        """Return the region of the pool."""
        return RegionId(self.cloud, self.region)

    @property
    def place(self) -> str:
        """Return region and, where it has one, zone, such as ``aws/us-east-1/us-east-1a``."""
        return f"{self.region_id}/{self.zone}" if self.zone else str(self.region_id)

    def concerns(self, other: MachinePool) -> bool:
        """Return whether it says something of the other: the same pool, or one of them is of the whole region."""
        same = (self.cloud, self.region, self.instance_type, self.market) == (
            other.cloud,
            other.region,
            other.instance_type,
            other.market,
        )
        return same and (self.zone is None or other.zone is None or self.zone == other.zone)


@dataclass(frozen=True, slots=True)
class Offer(MachinePool):
    """A pool for sale at one price; its key is unique within a book.

    ``machines_cap`` None is unknown capacity, taken as unlimited and shown so.
    ``interruptions_per_hour`` is the rate at which one such machine is preempted, where its owner states it.
    ``interruption_band`` is what the cloud publishes of it, of the day ``band_as_of``, and ``preempted_share`` the
    share of stopped machines that were preempted (:mod:`pricing.risk`). ``as_of`` None is undated: weak, and it fails
    any ``--max-age``. ``not_before`` marks a date known only as "on or after". ``weak`` holds the reason to doubt the
    row ("" when there is none).
    """

    usd_per_hour: UsdPerHour
    source: str
    as_of: date | None
    not_before: bool = False
    machines_cap: int | None = None
    interruptions_per_hour: float | None = None
    interruption_band: str | None = None
    band_as_of: date | None = None
    preempted_share: float | None = None
    price_basis: str = "list"
    weak: str = ""

    @property
    def provisionable(self) -> bool:
        """Return whether a plan line on it can be applied (else it is only shown, or ``--advisory``)."""
        return self.cloud in PROVISIONABLE_CLOUDS and not self.unmade

    @property
    def unmade(self) -> str:
        """Return why no image of the cloud serves its machine; "" where one does, or the cloud needs none."""
        return explain_unmade(self.cloud, self.instance_type)

    def doubted(self, why: str) -> Self:
        """Return the offer with one more reason for doubt."""
        return replace(self, weak="; ".join(filter(None, (self.weak, why))))

    def age_days(self, today: date) -> int | None:
        """Return the whole days since ``as_of``; None when undated."""
        return None if self.as_of is None else (today - self.as_of).days


_STALE = "not refreshed since "
_CAPPED = "spot equals on demand: capped, or not the price of spot"
_SPOT_QUOTE_STEP = UsdPerHour.parse("0.0001")


def mark_stale(offer: Offer, since: date) -> Offer:
    """Return the offer marked as taken over from a book of ``since``, because its cloud could not be asked.

    An offer that is marked already is returned unchanged.
    """
    if _STALE in offer.weak:
        return offer
    return offer.doubted(f"{_STALE}{since.isoformat()}")


def is_sound(offer: Offer) -> bool:
    """Return whether nothing but its age speaks against the price."""
    return offer.as_of is not None and not [why for why in offer.weak.split("; ") if why and not why.startswith(_STALE)]


def is_stale(offer: Offer) -> bool:
    """Return whether :func:`mark_stale` marked it."""
    return _STALE in offer.weak


def mark_capped_spot(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return the offers; a spot price that equals the on-demand price beside it is marked.

    Such a price is a cap that was reached, or stands where there is none.
    """
    offers = tuple(offers)
    listed = {offer.key: offer.usd_per_hour for offer in offers if offer.market is Market.ON_DEMAND}

    def is_capped(offer: Offer) -> bool:
        key = find_listed(offer.key, listed) if offer.market is Market.SPOT and _CAPPED not in offer.weak else None
        return key is not None and listed[key] == offer.usd_per_hour

    return tuple(offer.doubted(_CAPPED) if is_capped(offer) else offer for offer in offers)


def find_listed(key: OfferKey, offers: Mapping[OfferKey, Any]) -> OfferKey | None:
    """Return the key of the on-demand offer of the same machine in the zone, else in the region; None without one."""
    cloud, region, zone, instance_type, _ = key
    places = ((cloud, region, place, instance_type, Market.ON_DEMAND.value) for place in (zone, ""))
    return next((place for place in places if place in offers), None)


def remove_rounding_excess(spot: UsdPerHour, on_demand: UsdPerHour | None) -> UsdPerHour:
    """Return the spot price, lowered to the on-demand price when it exceeds it by rounding alone.

    AWS quotes spot with four decimals and on-demand with five: a spot price that equals on-demand may read slightly
    above it (p4d in eu-central-1: 27.4330 and 27.43298). A larger difference stays, and is refused later.
    """
    if on_demand is not None and 0 < spot.nanos - on_demand.nanos < _SPOT_QUOTE_STEP.nanos:
        return on_demand
    return spot
