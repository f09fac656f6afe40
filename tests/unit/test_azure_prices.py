"""Rows of the Retail Prices API, as its documentation shows them, into prices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pricing.places import Market
from providers.azure.parse import prices as p
from providers.azure.parse.prices import read_prices

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)

# The columns of "Azure Retail Prices overview" (Microsoft Learn); numbers as text, as the client reads them.
ROW: dict[str, Any] = {
    "currencyCode": "USD",
    "tierMinimumUnits": "0.0",
    "retailPrice": "98.32",
    "unitPrice": "98.32",
    "armRegionName": "eastus",
    "location": "US East",
    "effectiveStartDate": "2023-08-01T00:00:00Z",
    "meterId": "0d1fca5e-4c4b-5b2c-8c6f-3f0a5f5a2d11",
    "meterName": "ND96isrH100v5",
    "productId": "DZH318Z08MCV",
    "skuId": "DZH318Z08MCV/0009",
    "productName": "Virtual Machines NDsrH100v5 Series",
    "skuName": "ND96isrH100v5",
    "serviceName": "Virtual Machines",
    "serviceId": "DZH313Z7MMC8",
    "serviceFamily": "Compute",
    "unitOfMeasure": "1 Hour",
    "type": "Consumption",
    "isPrimaryMeterRegion": True,
    "armSkuName": "Standard_ND96isr_H100_v5",
}
SPOT = {**ROW, "meterName": "ND96isrH100v5 Spot", "skuName": "ND96isrH100v5 Spot", "retailPrice": "39.99"}


def read(*rows: object) -> p.RegionPrices:
    return read_prices(rows, "eastus", NOW)


def test_both_markets_of_a_size() -> None:
    found = read(ROW, SPOT)
    assert [(x.instance_type, x.market, str(x.price)) for x in found.listed] == [
        ("Standard_ND96isr_H100_v5", Market.ON_DEMAND, "98.32"),
        ("Standard_ND96isr_H100_v5", Market.SPOT, "39.99"),
    ]
    assert found.listed[0].since == datetime(2023, 8, 1, tzinfo=UTC)
    assert (found.dropped, found.doubtful, found.rows_read) == ((), frozenset(), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"productName": "Virtual Machines NDsrH100v5 Series Windows"},
        {"meterName": "ND96isrH100v5 Low Priority", "skuName": "ND96isrH100v5 Low Priority"},
        {"type": "DevTestConsumption"},
        {"type": "Reservation", "reservationTerm": "3 Years"},
        {"productName": "NCv3 Series CloudServices"},
        {"productName": "NDv2 Series Dedicated Host"},
        {"serviceName": "Cloud Services"},
        {"armSkuName": "Standard_D14"},
        {"armSkuName": "Standard_NP10s"},
    ],
    ids=str,
)
def test_what_nobody_asked_for_is_passed_over(change: dict[str, Any]) -> None:
    found = read({**ROW, **change})
    assert (found.listed, found.dropped, found.doubtful, found.rows_read) == ((), (), frozenset(), 1)


@pytest.mark.parametrize(
    ("change", "why", "doubt"),
    [
        ({"retailPrice": "0.0"}, p.ZERO, True),
        ({"retailPrice": 0}, p.ZERO, True),
        ({"retailPrice": "-1.5"}, p.ZERO, True),
        ({"retailPrice": "nan"}, p.NO_PRICE, True),
        ({"retailPrice": None}, p.NO_PRICE, True),
        ({"retailPrice": True}, p.NO_PRICE, True),
        ({"retailPrice": "0.12345678901"}, p.NO_PRICE, True),
        ({"currencyCode": "EUR"}, p.NOT_USD, True),
        ({"currencyCode": None}, p.NOT_USD, True),
        ({"unitOfMeasure": "1/Month"}, p.NOT_HOURLY, True),
        ({"effectiveStartDate": "soon"}, p.NO_DATE, True),
        ({"effectiveStartDate": None}, p.NO_DATE, True),
        ({"armSkuName": ""}, p.NO_SIZE, True),
        ({"effectiveStartDate": "2026-12-01T00:00:00Z"}, p.NOT_YET, False),
        ({"effectiveEndDate": "2026-01-01T00:00:00Z"}, p.NO_LONGER, False),
        ({"armRegionName": "westus"}, p.OTHER_REGION, False),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_used_is_named(change: dict[str, Any], why: str, *, doubt: bool) -> None:
    found = read({**ROW, **change}, SPOT)
    assert [x.market for x in found.listed] == [Market.SPOT]
    assert [d.why for d in found.dropped] == [why]
    assert "eastus" in found.dropped[0].row
    assert found.doubtful == (frozenset({Market.ON_DEMAND}) if doubt else frozenset())


def test_a_row_that_is_no_object_may_have_been_anything() -> None:
    found = read("<html>", SPOT, None)
    assert [d.why for d in found.dropped] == [p.NOT_AN_OBJECT, p.NOT_AN_OBJECT]
    assert found.doubtful == frozenset({Market.ON_DEMAND, Market.SPOT})
    assert len(found.listed) == 1


def test_the_same_price_twice_is_one() -> None:
    later = {**ROW, "effectiveStartDate": "2026-02-01T00:00:00Z"}
    found = read(later, ROW, ROW)
    assert len(found.listed) == 1
    assert found.listed[0].since == datetime(2023, 8, 1, tzinfo=UTC)
    assert found.dropped == ()


def test_two_prices_are_none() -> None:
    found = read(ROW, {**ROW, "retailPrice": "98.33"}, SPOT)
    assert [x.market for x in found.listed] == [Market.SPOT]
    assert [d.why for d in found.dropped] == [p.DISAGREE]
    assert found.doubtful == {Market.ON_DEMAND}


def test_of_two_prices_in_force_the_newer_counts() -> None:
    """As the API answers where a price changed and the row before has no end; then a third that begins with it."""
    newer = {**ROW, "retailPrice": "88.49", "effectiveStartDate": "2026-09-01T00:00:00Z"}
    for rows in ((ROW, newer), (newer, ROW)):
        (listed,) = read(*rows).listed
        assert (str(listed.price), listed.since) == ("88.49", datetime(2026, 9, 1, tzinfo=UTC))
    found = read(ROW, newer, {**newer, "retailPrice": "90.00"})
    assert (found.listed, [row.why for row in found.dropped]) == ((), [p.DISAGREE])


def test_the_primary_meter_goes_before_others() -> None:
    other = {**ROW, "isPrimaryMeterRegion": False, "retailPrice": "120.5"}
    assert [str(x.price) for x in read(other, ROW).listed] == ["98.32"]
    assert [str(x.price) for x in read(other).listed] == ["120.50"]
    assert read(other, {**other, "retailPrice": "121"}).listed == ()


def test_a_price_that_starts_later_does_not_disturb_the_one_in_force() -> None:
    found = read(ROW, {**ROW, "retailPrice": "90", "effectiveStartDate": "2027-01-01T00:00:00Z"})
    assert [str(x.price) for x in found.listed] == ["98.32"]
    assert [d.why for d in found.dropped] == [p.NOT_YET]


def test_no_digit_is_lost() -> None:
    assert str(read({**ROW, "retailPrice": "0.236555001"}).listed[0].price) == "0.236555001"
