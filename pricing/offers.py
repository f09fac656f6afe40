"""Offers: something for sale in one place at one price."""

from __future__ import annotations

from dataclasses import dataclass
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
