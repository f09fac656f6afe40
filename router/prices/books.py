"""Choice of the price book that a command works with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from pricing.book import PriceBook
from pricing.book_file import embedded_book, read_book
from pricing.offers import Offer, OfferKey
from pricing.problems import InvalidInputError
from router.prices.bookstore import BookStore, StoredBook
from router.prices.data_folders import books_folder

LATEST = "latest"
EMBEDDED = "embedded"
SANDBOX = "sandbox"
_DIGEST = re.compile(r"[0-9a-fA-F]{8,64}")


@dataclass(slots=True)
class CurrentBook:
    """Provide the current book of a name (as for :func:`load_book`) at each call.

    It is read again only where ``latest`` or ``sandbox`` points to another book than before.
    """

    name: str
    _digest: str | None = None
    _book: PriceBook | None = None

    def __call__(self) -> PriceBook:
        """Return the current book. InvalidInputError as :func:`load_book`."""
        stored = _find_current(self.name)
        digest = "" if stored is None else stored.digest
        if self._book is None or digest != self._digest:
            self._book, self._digest = load_book(self.name), digest
        return self._book


def load_book(name: str, store: BookStore | None = None) -> PriceBook:
    """Return the book called ``name``, without offers that no cloud sells; ``store`` None is the user's.

    ``name`` is ``latest`` (the last one fetched of real clouds, else the embedded one), ``sandbox`` (the last one
    fetched of the simulated cloud), ``embedded``, the digest of a stored book (eight digits or more), or a .parquet or
    .csv file. InvalidInputError when it is none of these, or was damaged.
    """
    return _load_unfiltered(name, store or BookStore(books_folder())).sold_only()


def _load_unfiltered(name: str, store: BookStore) -> PriceBook:
    if name == EMBEDDED:
        return embedded_book()
    if name == SANDBOX:
        return _sandbox_book(store.sandbox)
    if name == LATEST:
        stored = store.latest()
        return embedded_book() if stored is None else store.load(stored)
    if _DIGEST.fullmatch(name) and not Path(name).exists():
        return load_by_digest(store, name)
    if not Path(name).exists():
        remedy = "name latest, sandbox, embedded, a digest of `stepfare prices list`, or a .parquet or .csv file"
        raise InvalidInputError.single("no such file, and no name of a price book", where=name, remedy=remedy)
    return read_book(Path(name))


def load_by_digest(store: BookStore, digest: str) -> PriceBook:
    """Return the stored book whose digest begins so, of real or simulated clouds.

    InvalidInputError as :meth:`BookStore.find`.
    """
    sandbox = store.sandbox
    if any(stored.digest.startswith(digest.lower()) for stored in sandbox.all()):
        return sandbox.load(sandbox.find(digest))
    return store.load(store.find(digest))


def _find_current(name: str) -> StoredBook | None:
    store = BookStore(books_folder())
    if name == SANDBOX:
        return store.sandbox.latest()
    return store.latest() if name == LATEST else None


def _sandbox_book(store: BookStore) -> PriceBook:
    stored = store.latest()
    if stored is None:
        raise InvalidInputError.single(
            "no prices of the sandbox were ever fetched",
            field="--book",
            remedy="stepfare prices refresh --cloud sandbox fetches them",
        )
    return store.load(stored)


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
