"""Differences between two price books, offer by offer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from pricing.book import PriceBook
from pricing.offers import Offer, OfferKey


@dataclass(frozen=True, slots=True)
class PriceChange:
    """An offer in both books whose price differs."""

    before: Offer
    after: Offer

    @property
    def ratio(self) -> Fraction:
        """Return the new price over the old one, exact."""
        return Fraction(self.after.usd_per_hour.nanos, self.before.usd_per_hour.nanos)


@dataclass(frozen=True)
class BookDiff:
    """The differences of two books.

    ``changed`` has the largest change first (up or down alike), the others go by key.
    """

    before: PriceBook
    after: PriceBook
    added: tuple[Offer, ...]
    removed: tuple[Offer, ...]
    changed: tuple[PriceChange, ...]
    same: int


def diff_books(before: PriceBook, after: PriceBook, clouds: Iterable[str] = ()) -> BookDiff:
    """Return the differences from ``before`` to ``after``; only of these clouds, where any are named."""
    wanted = frozenset(clouds)
    old, new = _by_key(before, wanted), _by_key(after, wanted)
    both = [(old[key], offer) for key, offer in new.items() if key in old]
    changed = [PriceChange(a, b) for a, b in both if a.usd_per_hour != b.usd_per_hour]
    return BookDiff(
        before,
        after,
        added=tuple(offer for key, offer in new.items() if key not in old),
        removed=tuple(offer for key, offer in old.items() if key not in new),
        changed=tuple(sorted(changed, key=lambda c: (-max(c.ratio, 1 / c.ratio), c.after.key))),
        same=len(both) - len(changed),
    )


def _by_key(book: PriceBook, clouds: frozenset[str]) -> dict[OfferKey, Offer]:
    return {offer.key: offer for offer in book.offers if not clouds or offer.cloud in clouds}
