"""Short queries to several clouds at once: diagnosis (doctor), account limits (quotas) and stock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

from pricing.book import PriceBook
from providers.caller import Caller
from providers.errors import ProviderError
from providers.protocol import AccountAllowances, Diagnosis, GangQuery, Provider, StockHint
from providers.registry import open_provider
from providers.session import Session
from router.prices.cloud_settings import LoadedClouds

T = TypeVar("T")


def diagnose_clouds(
    names: Sequence[str], clouds: LoadedClouds, words: PriceBook, now: datetime, limit_s: float
) -> dict[str, Diagnosis | ProviderError]:
    """Return each adapter's diagnosis; an error where it could not even be opened."""
    return _ask_all(names, clouds, words, now, limit_s, lambda provider: provider.diagnose())


def query_allowances(
    names: Sequence[str], clouds: LoadedClouds, words: PriceBook, now: datetime, limit_s: float
) -> dict[str, AccountAllowances | ProviderError]:
    """Return quotas and reserved capacity, in the regions that the clouds file names or else in all."""

    def ask(provider: Provider) -> AccountAllowances:
        return provider.allowances(clouds.settings(provider.cloud).regions)

    return _ask_all(names, clouds, words, now, limit_s, ask)


def query_stock(
    names: Sequence[str], clouds: LoadedClouds, words: PriceBook, now: datetime, limit_s: float, gang: GangQuery
) -> dict[str, tuple[StockHint, ...] | ProviderError]:
    """Return what each cloud states about its stock for this gang."""
    return _ask_all(names, clouds, words, now, limit_s, lambda provider: tuple(provider.stock([gang])))


def _ask_all(
    names: Sequence[str],
    clouds: LoadedClouds,
    words: PriceBook,
    now: datetime,
    limit_s: float,
    question: Callable[[Provider], T],
) -> dict[str, T | ProviderError]:
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
