"""A market of single hosts as offers."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from gpuhunt.providers.vastai import get_location
from hypothesis import given
from hypothesis import strategies as st

from pricing.book_file import embedded_book
from pricing.places import Market
from providers.neoclouds.parse.accelerators import AcceleratorIndex
from providers.neoclouds.parse.catalogue_rows import NOT_ABOVE_ZERO, CatalogueContent
from providers.neoclouds.parse.fetch_result import CatalogueTerms, build_fetch_result
from providers.neoclouds.parse.hosts import NO_PLACE, HostGroup, format_location, read_hosts
from tests.support.neocloud_rows import market_offers

KNOWN = AcceleratorIndex(embedded_book().accelerators)


def host(number: int, dph: float, **more: Any) -> dict[str, Any]:
    (offer,) = market_offers(1)
    plain = {"id": number, "dph_base": dph, "storage_cost": 0, "min_bid": None, "num_gpus": 8}
    return {**offer, "geolocation": "Florida, US", **plain, **more}


def read(*offers: dict[str, Any]) -> tuple[list[HostGroup], CatalogueContent]:
    return read_hosts(json.loads(json.dumps({"offers": offers}), parse_float=Decimal), KNOWN)


def test_the_offers_price_holds_for_as_many_machines_as_it_says() -> None:
    (group,), _ = read(host(1, 20.0), host(2, 16.0), host(3, 18.0), host(4, 24.0))
    assert (group.region, group.instance_type) == ("us-florida", "8x_H100")
    assert (str(group.price), group.machines) == ("18.00", 2)
    (alone,), _ = read(host(1, 20.0))
    assert (str(alone.price), alone.machines) == ("20.00", 1)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_no_fewer_hosts_than_said_are_that_cheap(cents: list[int]) -> None:
    (group,), _ = read(*(host(number, price / 100) for number, price in enumerate(cents)))
    cheap = [price for price in cents if Decimal(price) / 100 <= Decimal(str(group.price))]
    assert group.machines == len(cheap) >= (len(cents) + 1) // 2
    assert any(Decimal(price) / 100 == Decimal(str(group.price)) for price in cents)


def test_disk_is_part_of_the_price_exactly() -> None:
    """0.15 dollars a GB and month of 720 hours: 100 GB cost 15/720 dollars an hour."""
    (group,), _ = read(host(1, 1.0, storage_cost=0.15, disk_space=2000.0, num_gpus=1))
    assert str(group.price) == "1.020833333"
    (small,), _ = read(host(1, 1.0, storage_cost=0.15, disk_space=48, num_gpus=1))
    assert str(small.price) == "1.01"


def test_a_bid_is_a_spot_price() -> None:
    groups, _ = read(host(1, 20.0, min_bid=12.5), host(2, 20.0, min_bid=0))
    assert [(g.market, str(g.price), g.machines) for g in groups] == [
        (Market.ON_DEMAND, "20.00", 2),
        (Market.SPOT, "12.50", 1),
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dph_base": "EUR 2"}, "is no number of 0 or more"),
        ({"dph_base": None}, "is no number of 0 or more"),
        ({"dph_base": -1}, "is no number of 0 or more"),
        ({"dph_base": True}, "is no number of 0 or more"),
        ({"gpu_ram": "80GB"}, "is no number of 0 or more"),
        ({"num_gpus": 8.5}, "is no count"),
        ({"gpu_name": 7}, "is no text"),
    ],
)
def test_a_host_that_cannot_be_read_is_named(changed: dict[str, Any], why: str) -> None:
    groups, reading = read(host(1, 20.0), host(2, 20.0, **changed))
    assert [group.machines for group in groups] == [1]
    assert [(bad.row, bad.what) for bad in reading.bad] == [("host 2", why)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dph_base": 0}, NOT_ABOVE_ZERO),
        ({"geolocation": None}, NO_PLACE),
        ({"geolocation": ""}, NO_PLACE),
        ({"gpu_name": "RTX 4090"}, "the accelerator is not in the book"),
    ],
)
def test_a_host_that_is_of_no_use_is_named(changed: dict[str, Any], why: str) -> None:
    groups, reading = read(host(1, 20.0, **changed))
    assert groups == []
    assert [(dropped.row, dropped.why) for dropped in reading.left_out] == [("host 1", why)]


def test_what_is_not_free_is_passed_over() -> None:
    groups, reading = read(host(1, 20.0, rented=True), host(2, 20.0, rentable=False))
    assert (groups, reading.left_out, reading.bad) == ([], [], [])


def test_the_same_host_twice_is_one() -> None:
    (group,), _ = read(host(1, 20.0), host(1, 20.0))
    assert group.machines == 1


@pytest.mark.parametrize("answer", [None, [], {}, {"offers": None}, {"offers": {"id": 1}}, "no"])
def test_another_form_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="no list of offers"):
        read_hosts(answer, KNOWN)


def test_an_offer_that_is_no_mapping_is_named() -> None:
    _, reading = read_hosts({"offers": [7]}, KNOWN)
    assert [bad.what for bad in reading.bad] == ["is no mapping"]


@pytest.mark.parametrize("text", ["Florida, US", "Sweden, SE", "US", "British Columbia, CA", "South Korea, KR"])
def test_places_are_called_as_gpuhunt_calls_them(text: str) -> None:
    assert format_location(text) == get_location(text)


def test_groups_become_offers_with_their_caps() -> None:
    _, reading = read(host(1, 20.0), host(2, 16.0), host(3, 18.0))
    day = date(2026, 11, 21)
    found = build_fetch_result(reading, embedded_book(), CatalogueTerms("vast", "free hosts", day, day))
    (offer,) = found.offers
    assert (offer.region, offer.instance_type, str(offer.usd_per_hour)) == ("us-florida", "8x_H100", "18.00")
    assert (offer.machines_cap, offer.zone) == (2, None)
    (machine,) = found.machines
    assert (machine.accelerator, machine.vcpus, machine.memory_gib) == ("H100", None, None)
    assert [region.country for region in found.regions] == [None]
