"""Which offers are shown, in which order, and as which text."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.places import Market
from router.render import offers_text
from router.render.offers_text import (
    OfferFilters,
    OfferRow,
    OfferSortKey,
    format_price,
    select_offers,
    unknown_names,
)
from tests.support.books import AN_OFFER, DAY, MACHINE, a_book, spot

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
BOOK = embedded_book()


def shown(
    filters: OfferFilters | None = None, sort: OfferSortKey = OfferSortKey.ACCELERATOR_HOUR
) -> tuple[OfferRow, ...]:
    return select_offers(BOOK, filters or OfferFilters(), sort, NOW.date()).rows


def test_all_offers_cheapest_accelerator_first() -> None:
    rows = shown()
    assert len(rows) == len(BOOK.offers)
    prices = [s.usd_per_accelerator_hour for s in rows]
    assert prices == sorted(prices)


def test_or_cheapest_machine_first() -> None:
    prices = [s.offer.usd_per_hour for s in shown(sort=OfferSortKey.HOUR)]
    assert prices == sorted(prices)


def test_filters_are_all_kept() -> None:
    filters = OfferFilters(
        clouds=("AWS", "gcp"),
        regions=("us-east-1", "gcp/us-central1"),
        accelerators=("h100",),
        markets=(Market.SPOT,),
    )
    rows = shown(filters)
    assert rows
    for s in rows:
        assert str(s.offer.region_id) in {"aws/us-east-1", "gcp/us-central1"}
        assert (s.machine.accelerator, s.offer.market) == ("H100", Market.SPOT)
    assert {s.offer.instance_type for s in shown(OfferFilters(instance_types=("P5.48xlarge",)))} == {"p5.48xlarge"}
    assert {s.offer.provisionable for s in shown(OfferFilters(provisionable=True))} == {True}


def test_a_maximum_age_refuses_the_old_and_the_undated() -> None:
    offers = [
        replace(AN_OFFER, zone="a", as_of=DAY - timedelta(days=30)),
        replace(AN_OFFER, zone="b", as_of=DAY - timedelta(days=31)),
        replace(AN_OFFER, zone="c", as_of=None),
        replace(AN_OFFER, zone="d", as_of=DAY - timedelta(days=31), not_before=True),
    ]
    selected = select_offers(a_book(offers), OfferFilters(max_age=timedelta(days=30)), OfferSortKey.HOUR, DAY)
    rows, too_old = selected.rows, selected.too_old
    assert [s.offer.zone for s in rows] == ["a"]
    assert too_old == 3


@pytest.mark.parametrize(
    ("as_of", "not_before", "age"),
    [(DAY, False, "0d"), (date(2025, 11, 18), True, "<=368d"), (None, False, "?")],
)
def test_age_is_said_in_words(as_of: date | None, not_before: bool, age: str) -> None:
    offer = replace(AN_OFFER, as_of=as_of, not_before=not_before)
    assert OfferRow(offer, MACHINE, offer.usd_per_hour, offer.age_days(DAY)).age == age


@pytest.mark.parametrize(
    ("price", "text"), [("0.05785", "0.0578"), ("1.2757", "1.2757"), ("55.04", "55.04"), ("98.315", "98.32")]
)
def test_prices_for_people(price: str, text: str) -> None:
    assert format_price(UsdPerHour.parse(price)) == text


def test_a_name_the_book_never_heard_of() -> None:
    found = unknown_names(BOOK, OfferFilters(clouds=("awz",), accelerators=("H100", "H1000")))
    assert [(option, value) for option, value, _ in found] == [("cloud", "awz"), ("accelerator", "H1000")]


def test_the_table_is_80_columns_wide_whatever_the_names() -> None:
    text = offers_text.table(shown())
    assert max(len(line) for line in text.splitlines()) <= 80
    weak = [line for line in text.splitlines() if line.startswith("lambda/")]
    assert weak
    assert all("~" in line for line in weak)


def test_every_price_has_its_source_and_weakness_in_words() -> None:
    rows = shown(OfferFilters(clouds=("azure",), accelerators=("H100",)))
    text = offers_text.table(rows)
    assert "[1] Karpenter Azure provider price table" in text or "[2] Karpenter Azure" in text
    assert "spot in 8 US regions only" in offers_text.wide(rows)


def test_json_is_exact_and_versioned() -> None:
    book = a_book([AN_OFFER, spot("30.123456789")])
    rows = select_offers(book, OfferFilters(), OfferSortKey.HOUR, DAY).rows
    document = json.loads(offers_text.as_json(rows, book, NOW))
    assert document["schema_version"] == 1
    assert document["book"]["digest"] == book.digest
    assert [o["usd_per_hour"] for o in document["offers"]] == ["30.123456789", "55.04"]
    assert document["offers"][1]["zone"] is None


def test_csv_has_the_same_fields() -> None:
    rows = shown(OfferFilters(clouds=("nebius",)))
    read = list(csv.DictReader(io.StringIO(offers_text.as_csv(rows))))
    assert tuple(read[0]) == tuple(offers_text.OFFERS.record(rows[0])) == offers_text.OFFERS.fields
    assert len(read) == len(rows)
    assert read[0]["provisionable"] == "false"


def test_no_offers_are_no_lines() -> None:
    assert offers_text.wide(()) == "\n"
    assert offers_text.as_csv(()).count("\n") == 1
