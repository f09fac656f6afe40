"""Money is exact, and a rate becomes an amount in one place."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.money import Usd, UsdPerGb, UsdPerHour, divide_half_even
from pricing.units import gb_to_bytes, gib_to_bytes


def test_a_day_of_minutes_adds_up() -> None:
    """A month of one-minute entries, each rounded, is the whole to within half a nano-dollar an entry."""
    rate = UsdPerHour.parse("3.0673")
    minute = rate.over(timedelta(minutes=1))
    assert str(rate.over(timedelta(hours=720))) == "2208.456"
    assert abs(minute.nanos * 43_200 - rate.over(timedelta(hours=720)).nanos) <= 43_200 // 2


@pytest.mark.parametrize(
    ("numerator", "denominator", "expected"),
    [(5, 2, 2), (7, 2, 4), (-5, 2, -2), (-7, 2, -4), (1, 3, 0), (2, 3, 1), (0, 7, 0)],
)
def test_ties_go_to_the_even_one(numerator: int, denominator: int, expected: int) -> None:
    assert divide_half_even(numerator, denominator) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [("912.60", "912.60"), ("0.000000001", "0.000000001"), ("-1.5", "-1.50"), ("7", "7.00"), ("0", "0.00")],
)
def test_shown_exactly(text: str, shown: str) -> None:
    assert str(Usd.parse(text)) == shown
    assert Usd.parse(shown) == Usd.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "twelve",
        "NaN",
        "Infinity",
        "0.0000000001",
        "$5",
        "1e16",
        "1e-999999",
        "1e999999",
        "1.00000000000000000000000000000000001",
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dollars"):
        Usd.parse(text)


def test_an_int_and_a_decimal_are_amounts() -> None:
    assert Usd.parse(3) == Usd.parse(Decimal("3.0")) == Usd(3_000_000_000)


def test_split_gives_everything_away() -> None:
    shares = Usd.parse("100").split((1, 1, 1))
    assert Usd.total(shares) == Usd.parse("100")
    assert [s.nanos for s in shares] == [33_333_333_334, 33_333_333_333, 33_333_333_333]


@pytest.mark.parametrize("weights", [(), (0, 0), (1, -1)])
def test_split_needs_weights(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Usd.parse("1").split(weights)


def test_a_discount_is_rounded_once() -> None:
    assert UsdPerHour.parse("10").scaled(Fraction(2, 3)) == UsdPerHour(6_666_666_667)
    assert UsdPerHour.parse("55.04").scaled(Decimal("0.9")) == UsdPerHour.parse("49.536")


def test_gb_and_gib_differ() -> None:
    assert gb_to_bytes(1) == 1_000_000_000
    assert gib_to_bytes(1) == 1_073_741_824
    assert gb_to_bytes(0.1) == 100_000_000


def test_a_price_per_gb_keeps_its_decimals() -> None:
    assert str(UsdPerGb.parse("0.085")) == "0.085"
    assert UsdPerGb.parse("0.085").dollars() == 0.085
