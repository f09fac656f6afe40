"""Parser of Google's signals over time: spot prices of the past year, shares of preempted machines, obtainability."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pricing.history import PricePoint
from pricing.money import NANOS, UsdPerHour
from pricing.places import Market
from pricing.units import parse_utc
from providers.gcp.allowances import last_segment
from providers.protocol import DroppedRow, GangQuery, StockHint

HISTORY_SOURCE = "Google Compute Engine advice.capacityHistory"
STOCK_SOURCE = "Google Compute Engine advice.capacity"
NO_SHARE = "a share of preempted machines that is not between 0 and 1"


def read_spot_prices(
    cloud: str, region: str, answer: Mapping[str, Any], since: datetime, now: datetime
) -> list[PricePoint]:
    """Return price changes of one machine type in a region, from ``priceHistory`` of advice.capacityHistory.

    Each is at the moment from which it held, the one in force at ``since`` included. Prices not in USD or not above 0
    are left out.
    """
    points = []
    for record in answer.get("priceHistory", ()):
        interval, money = record.get("interval", {}), record.get("listPrice", {})
        start, end = parse_utc(interval.get("startTime")), parse_utc(interval.get("endTime"))
        nanos = int(money.get("units") or 0) * NANOS + int(money.get("nanos") or 0)
        if start is None or start > now or (end is not None and end <= since):
            continue
        if money.get("currencyCode") != "USD" or nanos <= 0:
            continue
        points.append(
            PricePoint(
                cloud,
                region,
                None,
                str(answer.get("machineType", "")),
                Market.SPOT,
                start,
                HISTORY_SOURCE,
                UsdPerHour(nanos),
            )
        )
    return sorted(points, key=lambda p: p.at)


def read_preempted_share(
    zone: str, machine_type: str, answer: Mapping[str, Any]
) -> tuple[float | None, tuple[DroppedRow, ...]]:
    """Return the mean share of preempted among stopped Spot machines over the days published, and unusable days.

    None where no day is. ``preemptionHistory`` of advice.capacityHistory has a record a day; on a day without a rate no
    machine stopped. Hours are not published: no rate an hour follows from a share alone.
    """
    shares: list[float] = []
    dropped: list[DroppedRow] = []
    for record in answer.get("preemptionHistory", ()):
        share = record.get("preemptionRate")
        if isinstance(share, int | float) and 0 <= share <= 1:
            shares.append(float(share))
        elif share is not None:
            dropped.append(DroppedRow(f"{zone}/{machine_type}/{Market.SPOT.value}", NO_SHARE))
    return (sum(shares) / len(shares) if shares else None), tuple(dropped)


def read_stock_hint(region: str, gang: GangQuery, answer: Mapping[str, Any]) -> StockHint | None:
    """Return how likely the whole gang can be obtained as Spot in one zone of the region (0 to 1).

    ``zone`` is the one that Google picked for it. None where it gives no score.
    """
    recommendation: Mapping[str, Any] = next(iter(answer.get("recommendations", ())), {})
    score = recommendation.get("scores", {}).get("obtainability")
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        return None
    zones = {last_segment(shard.get("zone", "")) for shard in recommendation.get("shards", ())} - {""}
    zone = zones.pop() if len(zones) == 1 else None
    return StockHint(region, zone, gang.instance_type, Market.SPOT, float(score), None, STOCK_SOURCE)
