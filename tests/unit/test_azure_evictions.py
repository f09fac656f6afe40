"""Eviction rates of Azure: rows of the SpotResources table, and the bands that offers get from them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from pricing.risk import AZURE_BANDS
from providers.azure.parse.evictions import (
    DISAGREE,
    NO_PLACE,
    NOT_AN_OBJECT,
    UNKNOWN_RATE,
    EvictionRates,
    read_eviction_rates,
    set_bands,
)

H100 = "Standard_ND96isr_H100_v5"
SPOT = Offer("azure", "eastus", "1", H100, Market.SPOT, UsdPerHour.parse("24.58"), "Azure", date(2026, 11, 21))


def row(rate: object = "0-5", size: object = H100.lower(), location: object = "eastus") -> dict[str, Any]:
    return {"id": "/x", "skuName": size, "location": location, "evictionRate": rate}


@pytest.mark.parametrize(
    ("rate", "band"),
    list(zip(("0-5", "5-10", "10-15", "15-20", "20+"), AZURE_BANDS, strict=True)),
)
def test_each_documented_rate_is_a_band(rate: str, band: str) -> None:
    assert read_eviction_rates([row(rate)], "eastus") == EvictionRates({H100.lower(): band}, (), 1)


def test_rows_of_other_regions_are_no_concern() -> None:
    read = read_eviction_rates([row("0-5", location="westeurope"), row("20+", location="EastUS")], "eastus")
    assert read == EvictionRates({H100.lower(): "20+%/h"}, (), 1)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("a text", NOT_AN_OBJECT),
        (row(size=None), NO_PLACE),
        (row(location=""), NO_PLACE),
        (row(None), UNKNOWN_RATE),
        (row(5), UNKNOWN_RATE),
        (row("0-5%"), UNKNOWN_RATE),
    ],
)
def test_a_row_that_cannot_be_used_is_named(given: object, why: str) -> None:
    read = read_eviction_rates([given, row("5-10", "standard_nc6s_v3")], "eastus")
    assert [drop.why for drop in read.dropped] == [why]
    assert read.bands == {"standard_nc6s_v3": "5-10%/h"}


def test_of_two_rates_of_a_machine_neither_counts() -> None:
    read = read_eviction_rates([row("0-5"), row("20+"), row("5-10", "standard_nc6s_v3")], "eastus")
    assert [(drop.row, drop.why) for drop in read.dropped] == [(f"eastus {H100.lower()} spot", DISAGREE)]
    assert read.bands == {"standard_nc6s_v3": "5-10%/h"}
    assert read_eviction_rates([row("0-5"), row("0-5", H100)], "eastus").bands == {H100.lower(): "0-5%/h"}


def test_only_spot_offers_of_the_type_get_the_band() -> None:
    today = date(2026, 11, 21)
    others = (replace(SPOT, market=Market.ON_DEMAND), replace(SPOT, instance_type="Standard_NC6s_v3"))
    spot, *rest = set_bands((SPOT, *others), read_eviction_rates([row("5-10")], "eastus"), today)
    assert (spot.interruption_band, spot.band_as_of) == ("5-10%/h", today)
    assert tuple(rest) == others
