"""Short queries to several clouds at once: diagnosis (doctor), account limits (quotas), stock and its hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

from pricing.book import PriceBook
from pricing.history import PricePoint
from pricing.problems import InvalidInputError
from providers.caller import Caller
from providers.errors import ProviderError
from providers.protocol import GangQuery, Provider, StockHint
from providers.registry import open_provider
from providers.session import Session
from router.prices.cloud_settings import LoadedClouds

T = TypeVar("T")


def query_clouds(
    names: Sequence[str],
    clouds: LoadedClouds,
    words: PriceBook,
    now: datetime,
    limit_s: float,
    question: Callable[[Provider], T],
) -> dict[str, T | ProviderError]:
    """Return each cloud's answer to the question; an error where it gives none or its adapter cannot be opened."""
    callers: Mapping[str, Caller] = {name: Caller(name, limit_s) for name in names}

    def ask(name: str) -> T | ProviderError:
        try:
            return question(open_provider(name, Session(clouds.settings(name), words, now, callers[name])))
        except ProviderError as error:
            return error

    pool = ThreadPoolExecutor(max_workers=max(1, len(names)))
    try:
        return dict(zip(names, pool.map(ask, names), strict=True))
    finally:
        for caller in callers.values():
            caller.cancel()
        pool.shutdown(wait=False, cancel_futures=True)


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
            cloud,
            hint.region,
            hint.zone,
            hint.instance_type,
            hint.market,
            at=now,
            available=None if hint.machines is None else min(1.0, hint.machines / gang.machines),
            score=hint.score,
            source=f"{hint.source}, {gang.machines} machines",
        )
        for cloud, hint in hints
        if hint.score is not None or hint.machines is not None
    )
