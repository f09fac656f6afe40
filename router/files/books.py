"""Which price book a command works with."""

from __future__ import annotations

from pathlib import Path

from pricing.book import PriceBook
from pricing.bookfile import embedded_book, read_book

LATEST = "latest"
EMBEDDED = "embedded"


def load_book(name: str) -> PriceBook:
    """``latest`` (the last one fetched, else the embedded one), ``embedded``, or a .parquet or .csv file.

    Nothing fetches books yet, so ``latest`` is the embedded one. InvalidInputError for a file that is no book.
    """
    return embedded_book() if name in {LATEST, EMBEDDED} else read_book(Path(name))
