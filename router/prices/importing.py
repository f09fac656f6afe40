"""Offers from a file put into the stored price book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from pricing.offers import Offer
from pricing.problems import InvalidInputError
from providers.protocol import Harvest
from router.prices.bookstore import BookStore, StoredBook
from router.prices.gates import GateLimits, Held
from router.prices.merge import CloudCounts, merge
from router.prices.refresh import standing


def import_book(
    harvest: Harvest, store: BookStore, now: datetime, gates: GateLimits
) -> tuple[StoredBook, Mapping[str, CloudCounts], tuple[Held, ...]]:
    """Put offers from a file into the latest book; what the file does not speak of stays as it is.

    InvalidInputError when it holds no offers, or when the store cannot be written.
    """
    if not harvest.offers:
        raise InvalidInputError.single("holds no offers that could be used")
    by_cloud: dict[str, list[Offer]] = {}
    for offer in harvest.offers:
        by_cloud.setdefault(offer.cloud, []).append(offer)
    parts = {cloud: (replace(harvest, offers=tuple(offers)),) for cloud, offers in by_cloud.items()}
    with store.lock():
        before, words, _ = standing(store)
        merged = merge(before, words, parts, now, gates, asked=(), mark_kept=False)
        return store.commit(merged.book), merged.counts, merged.held
