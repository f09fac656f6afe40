"""Stored price books and the health of clouds as JSON data and CSV. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pricing.book import PriceBook
from router.files.csv_text import records_csv
from router.render.prices_view import BookRow, CloudHealth

SCHEMA_VERSION = 1
_FIELDS = ("name", "latest", "as_of", "digest", "offers", "file", "sha256")


def books_document(books: Sequence[BookRow], in_use: PriceBook, clouds: Sequence[CloudHealth]) -> dict[str, object]:
    """Return the books as in ``stepfare prices list -o json``, with the book in use and its clouds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "books": [book_record(row) for row in books],
        "in_use": {
            "digest": in_use.digest,
            "as_of": in_use.as_of.isoformat(),
            "offers": len(in_use.offers),
            "weak": sum(bool(offer.weak) for offer in in_use.offers),
        },
        "clouds": [_cloud_record(each) for each in clouds],
    }


def book_record(row: BookRow) -> dict[str, object]:
    """Return a stored book as data."""
    return {**asdict(row.book), "latest": row.latest, "name": row.name}


def books_as_csv(books: Sequence[BookRow]) -> str:
    """Return a row per stored book."""
    return records_csv(_FIELDS, map(book_record, books))


def _cloud_record(health: CloudHealth) -> dict[str, object]:
    record = health.record
    return {
        "cloud": health.cloud,
        "offers": health.offers,
        "weak": health.weak,
        "not_refreshed": health.stale,
        "undated": health.undated,
        "newest": None if health.newest is None else health.newest.isoformat(),
        "oldest": None if health.oldest is None else health.oldest.isoformat(),
        "last_refresh": None if record is None else {**asdict(record), "at": record.at.isoformat()},
    }
