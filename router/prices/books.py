"""Which price book a command works with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pricing.book import PriceBook
from pricing.bookfile import embedded_book, read_book
from router.prices.bookstore import BookStore
from router.prices.home import books_folder

LATEST = "latest"
EMBEDDED = "embedded"
_DIGEST = re.compile(r"[0-9a-fA-F]{8,64}")


@dataclass(slots=True)
class CurrentBook:
    """The book of a name (as for :func:`load_book`) whenever it is asked for; read again only where ``latest`` is
    another one than before."""

    name: str
    _digest: str | None = None
    _book: PriceBook | None = None

    def __call__(self) -> PriceBook:
        """InvalidInputError, as :func:`load_book`."""
        stored = BookStore(books_folder()).latest() if self.name == LATEST else None
        digest = "" if stored is None else stored.digest
        if self._book is None or digest != self._digest:
            self._book, self._digest = load_book(self.name), digest
        return self._book


def load_book(name: str) -> PriceBook:
    """``latest`` (the last one fetched, else the embedded one), ``embedded``, the digest of a stored book (eight
    digits or more), or a .parquet or .csv file. InvalidInputError when it is none of these, or was damaged."""
    if name == EMBEDDED:
        return embedded_book()
    store = BookStore(books_folder())
    if name == LATEST:
        stored = store.latest()
        return embedded_book() if stored is None else store.load(stored)
    if _DIGEST.fullmatch(name) and not Path(name).exists():
        return store.load(store.find(name))
    return read_book(Path(name))
