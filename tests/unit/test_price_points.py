"""One source, one series, one moment: one point."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pricing.history import PricePoint, merge_points
from pricing.money import UsdPerHour
from pricing.places import Market

AT = datetime(2026, 11, 21, tzinfo=UTC)
PRICE = PricePoint("aws", "us-east-1", None, "p5.48xlarge", Market.SPOT, AT, "a", UsdPerHour.parse(20))


def test_a_price_and_a_stock_at_one_moment_are_one_point() -> None:
    stock = replace(PRICE, usd_per_hour=None, available=0.5)
    assert merge_points([PRICE, stock]) == (replace(PRICE, available=0.5),)
    assert merge_points([stock, PRICE]) == (replace(PRICE, available=0.5),)


def test_the_first_word_stands() -> None:
    assert merge_points([PRICE, replace(PRICE, usd_per_hour=UsdPerHour.parse(30))]) == (PRICE,)


def test_other_sources_moments_and_zones_stay_apart() -> None:
    others = [replace(PRICE, source="b"), replace(PRICE, zone="z"), replace(PRICE, at=AT.replace(hour=1))]
    assert merge_points([PRICE, *others]) == (PRICE, *others)
