"""Amounts split by weights: parts worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from router.showback.apportion import split_amount


def amounts(*texts: str) -> tuple[Decimal, ...]:
    return tuple(Decimal(text) for text in texts)


@pytest.mark.parametrize(
    ("total", "weights", "places", "parts"),
    [
        ("100", [1, 1, 1], 2, ("33.34", "33.33", "33.33")),
        ("-100", [1, 1, 1], 2, ("-33.34", "-33.33", "-33.33")),
        ("0.02", [1, 1, 1], 2, ("0.01", "0.01", "0")),
        ("0.05", [1, 2, 1], 2, ("0.01", "0.03", "0.01")),  # 0.0125, 0.025, 0.0125
        ("10", [0, 1, 3], 1, ("0", "2.5", "7.5")),
        ("7", [0, 0], 0, ("4", "3")),  # nobody weighs anything: even, and nothing is dropped
        ("1.2345", [1, 1], 2, ("0.6173", "0.6172")),  # at the scale of the total, where that is finer
        ("0", [5, 1], 2, ("0", "0")),
        ("8", [Fraction(1, 3), Decimal("0.5")], 1, ("3.2", "4.8")),
    ],
)
def test_parts(total: str, weights: list[int | Fraction | Decimal], places: int, parts: tuple[str, ...]) -> None:
    found = split_amount(Decimal(total), weights, places)
    assert found == amounts(*parts)
    assert sum(found) == Decimal(total)


@pytest.mark.parametrize("weights", [[], [1, -1], [Decimal("-0.1")]])
def test_weights_that_are_none(weights: list[int | Decimal]) -> None:
    with pytest.raises(ValueError, match="none of them below zero"):
        split_amount(Decimal(1), weights, 2)


def test_many_digits_are_not_cut() -> None:
    # The usual context of decimals keeps 28.
    total = Decimal("12345678901234.123456789012345678901234")
    one, other = split_amount(total, [1, 1], 2)
    assert Fraction(one) + Fraction(other) == Fraction(total)
    assert one - other <= Decimal("1e-24")
