"""A book as refreshes bring it: spot by zone, each with a cap of its own."""

from __future__ import annotations

from dataclasses import replace

from pricing.book import PriceBook
from pricing.places import Market

CLOUDS = ("aws", "azure", "gcp")
CAP = 4


def zoned_book(book: PriceBook, rows: int) -> PriceBook:
    """Return the book with each spot row of three clouds split over zones of its region, ``rows`` rows in all."""
    spot = [o for o in book.offers if o.cloud in CLOUDS and o.market is Market.SPOT and o.zone is None]
    rest = [o for o in book.offers if not any(o is other for other in spot)]
    zones, more = divmod(rows - len(rest), len(spot))
    split = [
        replace(offer, zone=f"{offer.region}-{zone:02d}", machines_cap=CAP)
        for number, offer in enumerate(spot)
        for zone in range(zones + (number < more))
    ]
    return replace(book, offers=tuple(sorted((*rest, *split), key=lambda o: o.key)))
