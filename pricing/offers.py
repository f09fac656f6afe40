"""Offers: something for sale in one place at one price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from pricing.money import UsdPerHour
from pricing.places import PROVISIONABLE_CLOUDS, Market, RegionId

OfferKey = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Offer:
    """One machine type for sale in one place and market.

    ``zone`` None is a region-level offer. ``machines_cap`` None is unknown capacity, taken as unlimited
    and shown so. ``interruptions_per_hour`` is the rate at which one such machine is taken back, where a
    source states it (None: the dated prior applies). ``as_of`` None is undated: weak, and it fails any
    ``--max-age``. ``not_before`` marks a date known only as "on or after". ``weak`` holds why the row
    is to be doubted ("" when it is not).
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    usd_per_hour: UsdPerHour
    source: str
    as_of: date | None
    not_before: bool = False
    machines_cap: int | None = None
    interruptions_per_hour: float | None = None
    interruption_band: str | None = None
    price_basis: str = "list"
    weak: str = ""

    @property
    def key(self) -> OfferKey:
        """Unique within a book; offers sort by it."""
        return (self.cloud, self.region, self.zone or "", self.instance_type, self.market.value)

    @property
    def region_id(self) -> RegionId:
        return RegionId(self.cloud, self.region)

    @property
    def provisionable(self) -> bool:
        """Whether a plan line on it can be carried out (else it is only shown, or ``--advisory``)."""
        return self.cloud in PROVISIONABLE_CLOUDS

    def age_days(self, today: date) -> int | None:
        """Whole days since ``as_of``; None when undated."""
        return None if self.as_of is None else (today - self.as_of).days


_STALE = "not refreshed since "
_SPOT_QUOTE_STEP = UsdPerHour.parse("0.0001")


def marked_stale(offer: Offer, since: date) -> Offer:
    """The offer as kept from a book of ``since``, because its cloud could not be asked; marked once only."""
    if _STALE in offer.weak:
        return offer
    return replace(offer, weak="; ".join(filter(None, (offer.weak, f"{_STALE}{since.isoformat()}"))))


def is_sound(offer: Offer) -> bool:
    """Whether nothing but its age speaks against the price."""
    return offer.as_of is not None and not [why for why in offer.weak.split("; ") if why and not why.startswith(_STALE)]


def is_stale(offer: Offer) -> bool:
    """Whether :func:`marked_stale` marked it."""
    return _STALE in offer.weak


def within_rounding(spot: UsdPerHour, on_demand: UsdPerHour | None) -> UsdPerHour:
    """AWS quotes spot with four decimals and on-demand with five: a spot price that equals on-demand may
    read a hair above it (p4d in eu-central-1: 27.4330 and 27.43298). More than a hair stays, and is refused.
    """
    if on_demand is not None and 0 < spot.nanos - on_demand.nanos < _SPOT_QUOTE_STEP.nanos:
        return on_demand
    return spot
