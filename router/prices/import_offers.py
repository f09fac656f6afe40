"""Import of offers from a file into the stored price book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.book_file import embedded_book
from pricing.places import SIMULATED_CLOUDS, Market
from pricing.problems import InvalidInputError
from providers.protocol import FetchResult
from router.prices.bookstore import BookStore, StoredBook
from router.prices.merge import CloudCounts, drop_unsold, merge_books
from router.prices.quality_gates import GateLimits, GateRejection
from router.prices.refresh import load_all_tables, load_base_book
from router.prices.report import DroppedRowGroup, group_dropped_rows


@dataclass(frozen=True)
class OfferImport:
    """The result of an import: the new latest book, changes by cloud, and rows that were dropped or held back."""

    stored: StoredBook
    counts: Mapping[str, CloudCounts]
    dropped: tuple[DroppedRowGroup, ...]
    held: tuple[GateRejection, ...]
    passed_over: int


def import_book(
    found: Mapping[str, FetchResult], store: BookStore, now: datetime, gates: GateLimits, *, replacing: bool
) -> OfferImport:
    """Put offers, by cloud, into the latest book.

    Offers that the file does not name stay as they are; ``replacing`` removes those of the regions and markets that it
    covers. InvalidInputError when it holds no offers that could be used, or some of a simulated cloud, or what the
    book's own check refuses.
    """
    words = load_all_tables(store)
    found = {cloud: drop_unsold(result, words) for cloud, result in found.items()}
    if not any(result.offers for result in found.values()):
        raise InvalidInputError.single("holds no offers that could be used")
    simulated = sorted(SIMULATED_CLOUDS & found.keys())
    if simulated:
        raise InvalidInputError.single(
            f"holds prices of {', '.join(simulated)}, a simulated cloud, which shares no book with real ones",
            remedy="take those rows out, or name the file itself as --book",
        )
    parts = {cloud: (replace(h, covered=_covered(h) if replacing else frozenset()),) for cloud, h in found.items()}
    now = now.replace(microsecond=0)
    with store.lock():
        before, _, _ = load_base_book(store)
        merged = merge_books(before, embedded_book(), parts, now, gates, asked=(), mark_kept=False)
        stored = store.commit(merged.book)
    rows = [row for result in found.values() for row in result.dropped]
    return OfferImport(stored, merged.counts, group_dropped_rows(rows), merged.held, merged.passed_over)


def _covered(result: FetchResult) -> frozenset[tuple[str, Market]]:
    """Return what the file's form covers, else each region and market that it has rows of."""
    return result.covered or frozenset((offer.region, offer.market) for offer in result.offers)
