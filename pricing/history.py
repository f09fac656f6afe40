"""Price history: observations of a price, of stock or of a score at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market


@dataclass(frozen=True, slots=True)
class PricePoint:
    """One source's statement about a machine type in one place at ``at`` (UTC, to the microsecond).

    ``usd_per_hour`` None: the source states no price. ``available`` is the share from 0 to 1 of the machines tried or
    asked for that could be obtained (1.0: all). ``score`` is the cloud's own judgement, 0 to 1. At least one of the
    three is not None.
    """

    at: datetime
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    usd_per_hour: UsdPerHour | None
    available: float | None
    score: float | None
    source: str

    @property
    def key(self) -> tuple[datetime, str, str, str, str, str, str]:
        """Return the key of the point: moment, place, machine type, market and source.

        A later point with the same key corrects the earlier one.
        """
        place = (self.cloud, self.region, self.zone or "", self.instance_type, self.market.value)
        return (self.at, *place, self.source)


def price_point(offer: Offer, at: datetime) -> PricePoint:
    """Return what an offer states at a moment: its price alone."""
    place = (offer.cloud, offer.region, offer.zone, offer.instance_type, offer.market)
    return PricePoint(at, *place, offer.usd_per_hour, None, None, offer.source)


def merge_points(points: Iterable[PricePoint]) -> tuple[PricePoint, ...]:
    """Merge points of the same key into one, in the order of their first.

    A later point fills in what the earlier ones leave open.
    """
    by_key: dict[tuple[datetime, str, str, str, str, str, str], PricePoint] = {}
    for point in points:
        first = by_key.setdefault(point.key, point)
        if first is not point:
            by_key[point.key] = replace(
                first,
                usd_per_hour=point.usd_per_hour if first.usd_per_hour is None else first.usd_per_hour,
                available=point.available if first.available is None else first.available,
                score=point.score if first.score is None else first.score,
            )
    return tuple(by_key.values())
