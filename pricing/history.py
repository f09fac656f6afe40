"""One observation of a price, of stock or of a score at one moment: what price history is made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pricing.money import UsdPerHour
from pricing.places import Market


@dataclass(frozen=True, slots=True)
class PricePoint:
    """What a source said of one machine type in one place at ``at`` (UTC, to the microsecond).

    ``usd_per_hour`` None is no price said; ``available`` is the share from 0 to 1 of the machines tried or asked
    for that could be had (1.0: all); ``score`` the cloud's own judgement, 0 to 1. At least one is not None.
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
