"""Price history: observations of a price, of stock or of a score at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.money import UsdPerHour
from pricing.offers import MachinePool, Offer, OfferKey


@dataclass(frozen=True, slots=True)
class PricePoint(MachinePool):
    """One source's statement about a pool at ``at`` (UTC, to the microsecond).

    ``usd_per_hour`` None: the source states no price. ``available`` is the share from 0 to 1 of the machines tried or
    asked for that could be obtained (1.0: all). ``score`` is the cloud's own judgement, 0 to 1. At least one of the
    three is not None.
    """

    at: datetime
    source: str
    usd_per_hour: UsdPerHour | None = None
    available: float | None = None
    score: float | None = None

    @property
    def statement(self) -> tuple[datetime, OfferKey, str]:
        """Return moment, pool and source. A later point with the same ones corrects the earlier one."""
        return (self.at, self.key, self.source)


def price_point(offer: Offer, at: datetime) -> PricePoint:
    """Return what an offer states at a moment: its price alone."""
    place = (offer.cloud, offer.region, offer.zone, offer.instance_type, offer.market)
    return PricePoint(*place, at, offer.source, offer.usd_per_hour)


def merge_points(points: Iterable[PricePoint]) -> tuple[PricePoint, ...]:
    """Merge points of the same statement into one, in the order of their first.

    A later point fills in what the earlier ones leave open.
    """
    by_statement: dict[tuple[datetime, OfferKey, str], PricePoint] = {}
    for point in points:
        first = by_statement.setdefault(point.statement, point)
        if first is not point:
            by_statement[point.statement] = replace(
                first,
                usd_per_hour=point.usd_per_hour if first.usd_per_hour is None else first.usd_per_hour,
                available=point.available if first.available is None else first.available,
                score=point.score if first.score is None else first.score,
            )
    return tuple(by_statement.values())
