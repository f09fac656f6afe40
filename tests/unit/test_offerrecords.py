"""Offers as `offers -o csv` writes them come back the same; what is wrong is named by line and column."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pricing.book_file import embedded_book, read_book
from pricing.problems import InvalidInputError
from router.render.offers_text import OFFERS, OfferFilters, OfferSortKey, as_csv, select_offers

BOOK = embedded_book()
HEADER = "cloud,region,instance_type,market,accelerator,accelerator_count,usd_per_hour,source,as_of"
ROW = "aws,us-east-1,p5.48xlarge,spot,H100,8,20.5,mine,2026-11-20"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "offers.csv"
    path.write_text(text)
    return path


def test_the_whole_embedded_book_comes_back(tmp_path: Path) -> None:
    shown = select_offers(BOOK, OfferFilters(), OfferSortKey.HOUR, date(2026, 11, 21)).rows
    assert read_book(written(tmp_path, as_csv(shown))).offers == BOOK.offers


def test_every_field_comes_back(tmp_path: Path) -> None:
    offer = replace(
        BOOK.offers[0],
        zone="z1",
        as_of=date(2026, 11, 20),
        not_before=True,
        machines_cap=3,
        interruptions_per_hour=0.125,
        interruption_band="<5%",
        band_as_of=date(2025, 6, 28),
        preempted_share=0.25,
        price_basis="zone",
        weak="because, it is",
    )
    shown = select_offers(BOOK.with_offers([offer]), OfferFilters(), OfferSortKey.HOUR, date(2026, 11, 21)).rows
    assert read_book(written(tmp_path, as_csv(shown))).offers == (offer,)


def test_only_what_is_needed_has_to_be_there(tmp_path: Path) -> None:
    (offer,) = read_book(written(tmp_path, f"{HEADER}\n{ROW}\n")).offers
    assert (str(offer.usd_per_hour), offer.as_of, offer.price_basis) == ("20.50", date(2026, 11, 20), "list")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{HEADER}\n{ROW.replace('20.5', '0')}\n", ":2: usd_per_hour"),
        (f"{HEADER}\n{ROW.replace('20.5', '')}\n", ":2: usd_per_hour"),
        (f"{HEADER}\n{ROW.replace('spot', 'spott')}\n", "did you mean spot?"),
        (f"{HEADER}\n{ROW}\n{ROW}\n", ":3: instance_type"),
        (f"{HEADER},colour\n{ROW},red\n", ":1: colour: unknown column"),
        (HEADER.replace("source,", "") + "\n", "source: missing column"),
        (f"{HEADER}\n{ROW.replace('2026-11-20', 'soon')}\n", ":2: as_of"),
        (f"{HEADER},band_as_of\n{ROW},soon\n", ":2: band_as_of"),
        (f"{HEADER},preempted_share\n{ROW},1.5\n", ":2: preempted_share"),
        (f"{HEADER},preempted_share\n{ROW},-0.5\n", ":2: preempted_share"),
        (f"{HEADER},interruption_band\n{ROW},25%\n", ":2: interruption_band"),
        (f"{HEADER}\n", "holds no offers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_book(written(tmp_path, text))
    assert place in str(caught.value)


def test_the_written_fields_are_those_that_can_be_read() -> None:
    from pricing.offer_csv import DERIVED_COLUMNS, OPTIONAL_RECORD_COLUMNS, REQUIRED_COLUMNS

    assert set(OFFERS.fields) == {*REQUIRED_COLUMNS, *OPTIONAL_RECORD_COLUMNS, *DERIVED_COLUMNS}
