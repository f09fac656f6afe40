"""Stock of clouds for a gang: hints sorted, and stored as points of the price history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pricing.book import PriceBook
from pricing.history import PricePoint
from pricing.places import Market
from pricing.problems import InvalidInputError
from providers.protocol import GangQuery, StockHint


def find_sellers(book: PriceBook, instance_type: str) -> tuple[str, ...]:
    """Return the clouds with a machine of that name, sorted. InvalidInputError when the book knows none."""
    clouds = sorted({m.cloud for m in book.machines if m.instance_type == instance_type})
    if not clouds:
        from pricing.book_check import did_you_mean

        near = did_you_mean(instance_type, {m.instance_type for m in book.machines})
        raise InvalidInputError.single(f"unknown machine {instance_type!r}", field="MACHINE", remedy=near)
    return tuple(clouds)


def sort_stock_hints(hints: Iterable[tuple[str, StockHint]]) -> tuple[tuple[str, StockHint], ...]:
    """Sort hints by score, then by machines, unknown last; ties by place."""

    def rank(named: tuple[str, StockHint]) -> tuple[float, int, str, str, str]:
        cloud, hint = named
        return (-(hint.score or 0.0), -(hint.machines or 0), cloud, hint.region, hint.zone or "")

    return tuple(sorted(hints, key=rank))


def build_stock_points(
    hints: Sequence[tuple[str, StockHint]], gang: GangQuery, now: datetime
) -> tuple[PricePoint, ...]:
    """Return the hints as history points: the cloud's score, and the share of the requested machines that it counts."""
    return tuple(
        PricePoint(
            at=now,
            cloud=cloud,
            region=hint.region,
            zone=hint.zone,
            instance_type=hint.instance_type,
            market=Market(hint.market),
            usd_per_hour=None,
            available=None if hint.machines is None else min(1.0, hint.machines / gang.machines),
            score=hint.score,
            source=f"{hint.source}, {gang.machines} machines",
        )
        for cloud, hint in hints
        if hint.score is not None or hint.machines is not None
    )
