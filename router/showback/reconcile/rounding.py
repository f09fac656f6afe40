"""Round fractions to decimals. Pure."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from pricing.money import divide_half_even

_WIDE: Final = Context(prec=400)


def round_fraction(value: Fraction, places: int) -> Decimal:
    """Round to N places, half to even."""
    return Decimal(divide_half_even(value.numerator * 10**places, value.denominator)).scaleb(-places, _WIDE)
