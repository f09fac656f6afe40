"""On-demand prices: products of the Price List API, lines of the public price list, savings of the Spot Advisor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.places import Market
from providers.aws.parse.advisor import UNKNOWN_BAND, UNREADABLE_SAVING, SpotAdvice, read_advice
from providers.aws.parse.offers import build_estimated_spot_offers, build_on_demand_offers, build_spot_offers
from providers.aws.parse.pricelist import NAMELESS_GPU, PublicPriceList, read_list
from providers.aws.parse.prices import NOT_ABOVE_ZERO, NOT_HOURLY, NOT_USD, TWO_PRICES, read_products
from providers.errors import UnreadableError
from tests.support import aws_service_pages as pages
from tests.support.aws_service_world import World, first_regions

BOOK = embedded_book()
TODAY = date(2026, 11, 21)
WANTED = frozenset({"p5.48xlarge", "g5.xlarge"})
WORLD = World(first_regions(1), (), datetime(2026, 11, 21, tzinfo=UTC), 100, 2.0)
REGION = WORLD.regions[0]


def _product(name: str, price: dict[str, str], sku: str = "A", unit: str = "Hrs", **attributes: str) -> str:
    term = {"priceDimensions": {"A.B.C": {"unit": unit, "pricePerUnit": price}}}
    product = {"sku": sku, "attributes": {"instanceType": name, **attributes}}
    return json.dumps({"product": product, "terms": {"OnDemand": {"A.B": term}}})


def test_products_give_exact_prices() -> None:
    read = read_products("aws", "us-east-1", [_product("p5.48xlarge", {"USD": "55.0400000000"})], WANTED)
    assert read.prices == {"p5.48xlarge": UsdPerHour.parse("55.04")}
    assert (read.dropped, read.lost, read.rows_read) == ((), frozenset(), 1)


@pytest.mark.parametrize(
    ("product", "why"),
    [
        (_product("g5.xlarge", {"USD": "0.0000000000"}), NOT_ABOVE_ZERO),
        (_product("g5.xlarge", {"CNY": "7.1"}), NOT_USD),
        (_product("g5.xlarge", {"USD": "1.0"}, unit="Quantity"), NOT_HOURLY),
    ],
)
def test_products_that_cannot_be_used_are_named_and_the_rest_stays(product: str, why: str) -> None:
    read = read_products("aws", "us-east-1", [product, _product("p5.48xlarge", {"USD": "55.04"})], WANTED)
    assert list(read.prices) == ["p5.48xlarge"]
    assert [drop.why for drop in read.dropped] == [why]
    assert read.lost == {"g5.xlarge"}


def test_a_type_listed_at_two_prices_has_none_and_listed_twice_at_one_has_it() -> None:
    one, same = _product("g5.xlarge", {"USD": "1.006"}), _product("g5.xlarge", {"USD": "1.0060000000"}, sku="B")
    assert read_products("aws", "us-east-1", [one, same], WANTED).prices == {"g5.xlarge": UsdPerHour.parse("1.006")}
    other = read_products("aws", "us-east-1", [one, _product("g5.xlarge", {"USD": "2"}, sku="B")], WANTED)
    assert not other.prices
    assert [drop.why for drop in other.dropped] == [TWO_PRICES]
    assert other.lost == {"g5.xlarge"}


def test_capacity_blocks_and_other_types_are_not_on_demand() -> None:
    block = _product("g5.xlarge", {"USD": "0"}, marketoption="CapacityBlock")
    read = read_products("aws", "us-east-1", [block, _product("m5.large", {"USD": "0.1"})], WANTED)
    assert (read.prices, read.dropped, read.rows_read) == ({}, (), 2)


@pytest.mark.parametrize("text", ["{", "[]", '{"product": {}}', '"x"', '{"product": {"attributes": [], "sku": 1}}'])
def test_a_product_of_another_form_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_products("aws", "us-east-1", [text], WANTED)


def _list(changes: frozenset[str] = frozenset(), noise: int = 7) -> bytes:
    return pages.price_list(WORLD, REGION, "2026-11-20", noise, changes)


def test_the_public_list_gives_the_same_prices_as_the_api() -> None:
    public = read_list("aws", REGION, [_list()], BOOK)
    names = frozenset(public.listed.prices)
    api = read_products("aws", REGION, pages.products(WORLD, REGION, frozenset()), names)
    assert len(names) > 40
    assert public.listed.prices == api.prices
    assert public.published == date(2026, 11, 20)
    assert {drop.why for drop in public.listed.dropped} == {NAMELESS_GPU}


@pytest.mark.parametrize(
    ("change", "why"), [("price_zero", NOT_ABOVE_ZERO), ("currency", NOT_USD), ("duplicate", TWO_PRICES)]
)
def test_lines_that_cannot_be_used_are_named(change: str, why: str) -> None:
    read = read_list("aws", REGION, [_list(frozenset({change}))], BOOK).listed
    whole = read_list("aws", REGION, [_list()], BOOK).listed
    assert [drop.why for drop in read.dropped if drop.why != NAMELESS_GPU] == [why]
    assert whole.prices.keys() - read.prices.keys() == read.lost
    assert len(read.lost) == 1


@cache
def _whole() -> tuple[bytes, PublicPriceList]:
    """A list, and what it says when it is read as one chunk."""
    content = _list(noise=1)
    return content, read_list("aws", REGION, [content], BOOK)


@given(st.integers(0, 2**32), st.integers(1, 50_000))
def test_where_the_stream_is_cut_into_chunks_does_not_matter(seed: int, size: int) -> None:
    content, whole = _whole()
    first = seed % size

    def chunks() -> Iterator[bytes]:
        yield content[:first]
        yield from (content[start : start + size] for start in range(first, len(content), size))

    assert read_list("aws", REGION, chunks(), BOOK) == whole


@given(st.integers(0, 10**6))
def test_a_list_cut_inside_a_line_is_refused(cut: int) -> None:
    content = _list(noise=1)
    cut %= len(content) - 1
    if b"\n" in content[cut - 1 : cut + 1] or content[:cut].endswith(b","):
        return  # the end of a line, or all but its last value: nothing in such a file shows that there was more
    with pytest.raises(UnreadableError):
        read_list("aws", REGION, [content[:cut]], BOOK)


def test_a_page_that_is_no_price_list_is_refused() -> None:
    for content in (b"", b"<html>\n" * 20, b"\n" * 10):
        with pytest.raises(UnreadableError):
            read_list("aws", REGION, [content], BOOK)


ADVICE: dict[str, Any] = {
    "ranges": [{"index": index, "label": label} for index, label in enumerate(pages.BANDS)],
    "spot_advisor": {"us-east-1": {"Linux": {"p5.48xlarge": {"r": 4, "s": 40}, "g5.xlarge": {"r": 0, "s": 66}}}},
}


def test_bands_and_savings_are_by_region() -> None:
    read = read_advice("aws", "us-east-1", ADVICE, WANTED)
    assert read == SpotAdvice({"p5.48xlarge": ">20%", "g5.xlarge": "<5%"}, {"p5.48xlarge": 40, "g5.xlarge": 66}, ())
    assert read_advice("aws", "eu-west-1", ADVICE, WANTED) == SpotAdvice({}, {}, ())


def test_advice_that_cannot_be_used_is_named() -> None:
    odd = {**ADVICE, "spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {"r": 9, "s": 100}}}}}
    read = read_advice("aws", "us-east-1", odd, WANTED)
    assert (read.bands, read.savings) == ({}, {})
    assert [drop.why for drop in read.dropped] == [UNKNOWN_BAND, UNREADABLE_SAVING]
    others: list[Any] = [{}, [], None, {"ranges": [{}], "spot_advisor": {}}, {"ranges": [], "spot_advisor": []}]
    for other in others:
        with pytest.raises(UnreadableError):
            read_advice("aws", "us-east-1", other, WANTED)


def test_a_saving_is_taken_off_exactly_and_is_weak() -> None:
    listed = {"p5.48xlarge": UsdPerHour.parse("55.04"), "p4d.24xlarge": UsdPerHour.parse("32")}
    advice = replace(read_advice("aws", "us-east-1", ADVICE, WANTED), as_of=date(2026, 11, 18))
    (offer,) = build_estimated_spot_offers("aws", "us-east-1", listed, advice, "the list", date(2026, 11, 19))
    assert str(offer.usd_per_hour) == "33.024"
    assert (offer.zone, offer.market, offer.price_basis) == (None, Market.SPOT, "advisor-savings")
    assert (offer.interruption_band, offer.band_as_of, offer.as_of) == (">20%", date(2026, 11, 18), date(2026, 11, 19))
    assert offer.weak
    (undated,) = build_estimated_spot_offers("aws", "us-east-1", listed, advice, "the list", None)
    assert "undated" in undated.weak


def test_on_demand_is_sold_in_each_zone_at_the_regions_price() -> None:
    price = {"g5.xlarge": UsdPerHour.parse("1.006")}
    by_zone = build_on_demand_offers("aws", "us-east-1", price, {"g5.xlarge": frozenset({"b", "a"})}, "s", TODAY)
    assert [(offer.zone, str(offer.usd_per_hour)) for offer in by_zone] == [("a", "1.006"), ("b", "1.006")]
    assert [offer.zone for offer in build_on_demand_offers("aws", "us-east-1", price, {}, "s", TODAY)] == [None]


def test_a_spot_price_a_hair_above_on_demand_is_on_demand() -> None:
    listed = {"p4d.24xlarge": UsdPerHour.parse("27.43298")}
    for quoted, sold in (("27.4330", "27.43298"), ("27.4331", "27.4331"), ("20", "20.00")):
        current = {("euc1-az1", "p4d.24xlarge"): UsdPerHour.parse(quoted)}
        advice = SpotAdvice({"p4d.24xlarge": "<5%"}, {}, (), date(2026, 6, 28))
        (offer,) = build_spot_offers("aws", "eu-central-1", current, listed, advice, TODAY)
        assert str(offer.usd_per_hour) == sold
        assert (offer.zone, offer.price_basis, offer.interruption_band) == ("euc1-az1", "zone", "<5%")
        assert offer.band_as_of == date(2026, 6, 28)


def test_an_offer_without_a_band_has_no_date_of_one() -> None:
    current = {("euc1-az1", "p4d.24xlarge"): UsdPerHour.parse("20")}
    advice = SpotAdvice({"p5.48xlarge": "<5%"}, {}, (), date(2026, 6, 28))
    (offer,) = build_spot_offers("aws", "eu-central-1", current, {}, advice, TODAY)
    assert (offer.interruption_band, offer.band_as_of) == (None, None)
