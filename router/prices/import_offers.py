"""Import of offers from a file into the stored price book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.book_file import embedded_book
from pricing.places import MADE_UP_CLOUDS, Market
from pricing.problems import InvalidInputError
from providers.protocol import Harvest
from router.prices.bookstore import BookStore, StoredBook
from router.prices.merge import CloudCounts, merge, without_unsold
from router.prices.quality_gates import GateLimits, Held
from router.prices.refresh import all_words, standing
from router.prices.report import DroppedRows, rows_by_reason


@dataclass(frozen=True)
class Imported:
    """The result of an import: the new latest book, changes by cloud, and rows that were dropped or held back."""

    stored: StoredBook
    counts: Mapping[str, CloudCounts]
    dropped: tuple[DroppedRows, ...]
    held: tuple[Held, ...]
    passed_over: int


def import_book(
    found: Mapping[str, Harvest], store: BookStore, now: datetime, gates: GateLimits, *, replacing: bool
) -> Imported:
    """Put offers, by cloud, into the latest book.

    Offers that the file does not name stay as they are; ``replacing`` removes those of the regions and markets that it
    covers. InvalidInputError when it holds no offers that could be used, or some of a simulated cloud, or what the
    book's own check refuses.
    """
    words = all_words(store)
    found = {cloud: without_unsold(result, words) for cloud, result in found.items()}
    if not any(result.offers for result in found.values()):
        raise InvalidInputError.single("holds no offers that could be used")
    simulated = sorted(MADE_UP_CLOUDS & found.keys())
    if simulated:
        raise InvalidInputError.single(
            f"holds prices of {', '.join(simulated)}, a simulated cloud, which shares no book with real ones",
            remedy="take those rows out, or name the file itself as --book",
        )
    parts = {cloud: (replace(h, covered=_covered(h) if replacing else frozenset()),) for cloud, h in found.items()}
    now = now.replace(microsecond=0)
    with store.lock():
        before, _, _ = standing(store)
        merged = merge(before, embedded_book(), parts, now, gates, asked=(), mark_kept=False)
        stored = store.commit(merged.book)
    rows = [row for result in found.values() for row in result.dropped]
    return Imported(stored, merged.counts, rows_by_reason(rows), merged.held, merged.passed_over)


def _covered(result: Harvest) -> frozenset[tuple[str, Market]]:
    """Return what the file's form covers, else each region and market that it has rows of."""
    return result.covered or frozenset((offer.region, offer.market) for offer in result.offers)
