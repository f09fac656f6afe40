"""Apportion an amount by weights into parts that add up to it to the last digit. Pure and exact.

The method is the largest remainder. The result is deterministic. Every part is its exact share cut to the scale. The
missing units, one last digit each, go to the parts that lost most by the cut, and of equal losses to the earlier part.
Where all weights are zero the parts are even; nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from functools import reduce

from pricing.money import divide_half_even

Weight = Decimal | Fraction | int

# This context never rounds: it raises instead.
_EXACT = Context(prec=400, traps=[Inexact, InvalidOperation])


def split_amount(total: Decimal, weights: Sequence[Weight], places: int) -> tuple[Decimal, ...]:
    """Split ``total`` into parts in proportion to the weights.

    The parts have ``places`` decimals, or as many as the total has where it has more. They add up to the total, and
    each is less than a last digit away from its exact share. The parts are even where all weights are 0. A negative
    total splits as its absolute value does. ValueError for no weights, or one below zero.
    """
    if not weights or min(weights) < 0:
        raise ValueError("a split is by one weight or more, none of them below zero")
    exact = [Fraction(weight) for weight in weights]
    if not any(exact):
        exact = [Fraction(1)] * len(exact)
    places = max(places, decimal_places(total))
    units, whole = int(abs(Fraction(total)) * 10**places), sum(exact)
    exact_parts = [units * weight / whole for weight in exact]
    parts = [share.numerator // share.denominator for share in exact_parts]
    by_loss = sorted(range(len(parts)), key=lambda at: (parts[at] - exact_parts[at], at))
    for at in by_loss[: units - sum(parts)]:
        parts[at] += 1
    return tuple(_decimal(part, places, negative=total < 0) for part in parts)


def decimal_places(value: Decimal) -> int:
    """Return how many decimals the value needs: 2 for 0.250. ValueError for a value that is not finite."""
    exponent = _EXACT.create_decimal(value).normalize(_EXACT).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a finite amount")
    return max(0, -exponent)


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """Return the sum with all digits, where the default decimal context would cut it at 28; zero for no amounts."""
    return reduce(_EXACT.add, amounts, Decimal(0))


def exact_difference(whole: Decimal, part: Decimal) -> Decimal:
    """Return the difference with all digits."""
    return exact_sum((whole, part.copy_negate()))


def sum_known(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum of the known amounts, with all digits; None where none is known."""
    known = [amount for amount in amounts if amount is not None]
    return exact_sum(known) if known else None


def subtract_known(whole: Decimal | None, part: Decimal | None) -> Decimal | None:
    """Return the difference, with all digits; None where one of them is unknown."""
    return None if whole is None or part is None else exact_difference(whole, part)


def round_fraction(value: Fraction, places: int) -> Decimal:
    """Round to N places, half to even."""
    return Decimal(divide_half_even(value.numerator * 10**places, value.denominator)).scaleb(-places, _EXACT)


def _decimal(units: int, places: int, *, negative: bool) -> Decimal:
    digits = tuple(int(digit) for digit in str(units))
    return Decimal((1 if negative and units else 0, digits, -places))
