"""The book as a value: sorted, digest-named, quick to look things up in, and honest about what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from pricing.book import PriceBook
from pricing.book_check import check_book
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import RegionId
from pricing.problems import InvalidInputError
from tests.support.books import AN_OFFER, DAY, MACHINE, a_book, a_tariff, spot

IRELAND = replace(AN_OFFER, region="eu-west-1")
TARIFF = a_tariff((0, 100, "0"), (100, None, "0.09"))


def problems_of(book: PriceBook) -> str:
    with pytest.raises(InvalidInputError) as caught:
        check_book(book)
    return str(caught.value)


def test_a_valid_book_passes() -> None:
    check_book(a_book([AN_OFFER, IRELAND, spot("30")], [TARIFF]))


def test_order_does_not_matter() -> None:
    one = a_book([AN_OFFER, IRELAND, spot("30")])
    other = a_book([spot("30"), IRELAND, AN_OFFER])
    assert one == other
    assert one.digest == other.digest
    assert [o.key for o in one.offers] == sorted(o.key for o in one.offers)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.with_offers([replace(AN_OFFER, usd_per_hour=UsdPerHour(AN_OFFER.usd_per_hour.nanos + 1))]),
        lambda b: b.with_offers([replace(AN_OFFER, source="elsewhere")]),
        lambda b: b.with_offers([replace(AN_OFFER, as_of=DAY - timedelta(days=1))]),
        lambda b: b.with_offers([replace(AN_OFFER, not_before=True)]),
        lambda b: b.with_offers([replace(AN_OFFER, machines_cap=0)]),
        lambda b: b.with_offers([replace(AN_OFFER, zone="us-east-1a")]),
        lambda b: b.with_offers([replace(AN_OFFER, weak="undated")]),
        lambda b: b.with_offers([]),
        lambda b: replace(b, as_of=b.as_of + timedelta(seconds=1)),
        lambda b: replace(b, tariffs=(TARIFF,)),
        lambda b: replace(b, machines=(replace(MACHINE, fabric=None),)),
        lambda b: replace(b, priors=b.priors[1:]),
        lambda b: replace(b, regions=b.regions[1:]),
        lambda b: replace(b, accelerators=()),
    ],
)
def test_any_change_changes_the_digest(change: Callable[[PriceBook], PriceBook]) -> None:
    book = a_book()
    assert change(book).digest != book.digest


def test_the_same_moment_elsewhere_is_the_same_book() -> None:
    berlin = datetime(2026, 11, 21, 1, tzinfo=timezone(timedelta(hours=1)))
    assert replace(a_book(), as_of=berlin) == a_book()


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        replace(a_book(), as_of=datetime(2026, 11, 21))  # noqa: DTZ001


def test_nothing_in_a_book_changes() -> None:
    book = a_book()
    with pytest.raises(FrozenInstanceError):
        book.as_of = datetime(2027, 1, 1, tzinfo=UTC)  # type: ignore[misc]


def test_lookups() -> None:
    book = a_book()
    assert book.machine("aws", "p5.48xlarge") == MACHINE
    assert book.machine("gcp", "p5.48xlarge") is None
    assert book.accelerator("H100") is not None
    assert book.accelerator("H1000") is None
    assert book.region(RegionId("aws", "us-east-1")) is not None
    assert book.region(RegionId("aws", "mars-1")) is None


@pytest.mark.parametrize(
    ("offer", "what"),
    [
        (replace(AN_OFFER, usd_per_hour=UsdPerHour(0)), "not above 0"),
        (replace(AN_OFFER, usd_per_hour=UsdPerHour(-1)), "not above 0"),
        (replace(AN_OFFER, source=""), "without a source"),
        (replace(AN_OFFER, machines_cap=-1), "negative"),
        (spot("30", interruptions_per_hour=float("nan")), "no rate"),
        (spot("30", interruptions_per_hour=-0.1), "no rate"),
        (spot("30", interruption_band="5%"), "not one of <5%"),
        (replace(AN_OFFER, region="us-east-9"), "unknown region aws/us-east-9 (did you mean us-east-1?)"),
        (replace(AN_OFFER, cloud="awz"), "unknown cloud 'awz' (did you mean aws?)"),
        (replace(AN_OFFER, instance_type="p5.48xlarg"), "(did you mean p5.48xlarge?)"),
    ],
)
def test_what_is_wrong_with_an_offer_is_said(offer: Offer, what: str) -> None:
    assert what in problems_of(a_book([offer]))


def test_duplicates_are_found() -> None:
    again = replace(AN_OFFER, source="elsewhere")
    assert "p5.48xlarge on_demand is there twice" in problems_of(a_book([AN_OFFER, again]))
    assert "regions: aws/us-east-1 is there 2 times" in problems_of(
        replace(a_book(), regions=(*a_book().regions, a_book().regions[1]))
    )


def test_spot_above_on_demand_is_refused_also_by_zone() -> None:
    assert "above the on-demand price 55.04" in problems_of(a_book([AN_OFFER, spot("55.05")]))
    assert "above the on-demand price 55.04" in problems_of(a_book([AN_OFFER, spot("60", zone="us-east-1a")]))
    check_book(a_book([AN_OFFER, spot("55.04")]))
    check_book(a_book([spot("60")]))


@pytest.mark.parametrize(
    "tiers",
    [
        ((1, None, "0.1"),),
        ((0, 100, "0.1"),),
        ((0, 100, "0.1"), (200, None, "0.2")),
        ((0, 100, "0.1"), (50, None, "0.2")),
        ((0, None, "0.1"), (100, None, "0.2")),
        (),
    ],
)
def test_tiers_must_be_contiguous(tiers: tuple[tuple[int, int | None, str], ...]) -> None:
    assert "tiers" in problems_of(a_book(tariffs=[a_tariff(*tiers)]))


def test_all_problems_come_at_once_with_their_places() -> None:
    bad = [replace(AN_OFFER, usd_per_hour=UsdPerHour(0)), replace(IRELAND, region="eu-west-7")]
    with pytest.raises(InvalidInputError) as caught:
        check_book(a_book(bad), {bad[0].key: "book.csv:2", bad[1].key: "book.csv:3"})
    assert [p.where for p in caught.value.problems] == ["book.csv:2", "book.csv:3"]


def test_age() -> None:
    assert AN_OFFER.age_days(date(2026, 12, 1)) == 10
    assert replace(AN_OFFER, as_of=None).age_days(DAY) is None
