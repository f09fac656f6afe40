"""A region that nobody has looked up: its tariffs are unknown, never those of some other place."""

from __future__ import annotations

from datetime import date

from pricing.book_file import embedded_book
from pricing.places import RegionId, make_unknown_region

BOOK = embedded_book()
NEW, OTHER = (make_unknown_region("aws", name, "made up", date(2026, 11, 21)) for name in ("xx-new-1", "xx-new-2"))


def test_nothing_about_it_is_guessed() -> None:
    assert (NEW.country, NEW.residency_group, NEW.latitude) == (None, None, None)


def test_no_tariff_within_its_cloud() -> None:
    known = BOOK.region(RegionId("aws", "us-east-1"))
    assert known is not None
    assert BOOK.egress.between(known, NEW) is None
    assert BOOK.egress.between(NEW, known) is None
    assert BOOK.egress.between(NEW, OTHER) is None


def test_staying_inside_it_is_free() -> None:
    tariff = BOOK.egress.between(NEW, NEW)
    assert tariff is not None
    assert tariff.top_price.nanos == 0


def test_a_tariff_by_exclusion_does_not_cover_it() -> None:
    known = BOOK.region(RegionId("gcp", "us-central1"))
    assert known is not None
    tariff = BOOK.egress.between(known, NEW)
    assert tariff is None or "except" not in tariff.to_group
