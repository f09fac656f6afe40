"""Exact money: whole nano-dollars in integers.

``UsdPerHour.over(duration)`` is the one place where an hourly price becomes an amount and is rounded (half to even);
sums of amounts are exact. A rate cannot be added to an amount. The unit is the nano-dollar because GCP quotes units +
nanos; a price with more than nine decimals is refused, not rounded. Adapters that compute a price from parts (Google's
SKUs, catalogues) round it once to the nano-dollar, by :func:`divide_half_even`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Self

NANOS = 1_000_000_000
NANOS_PER_CENT = NANOS // 100
_MICROSECONDS_PER_HOUR = 3_600_000_000
_LARGEST_POWER_OF_TEN = 15


def divide_half_even(numerator: int, denominator: int) -> int:
    """Return ``numerator / denominator`` rounded to the nearest integer, ties to the even one; denominator > 0."""
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    if twice > denominator or (twice == denominator and quotient % 2 == 1):
        quotient += 1
    return quotient


def _parse_nanos(text: str | int | Decimal) -> int:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount of dollars, e.g. 12.34") from None
    if not value.is_finite():
        raise ValueError(f"{text!r} is not a finite amount of dollars")
    if value and value.adjusted() > _LARGEST_POWER_OF_TEN:
        raise ValueError(f"{text} is too large to be an amount of dollars")
    # A fraction is exact, where a decimal product is rounded to 28 digits. Tiny exponents would only make it slow.
    nanos = Fraction(value) * NANOS if not value or value.adjusted() >= -9 else Fraction(1, 2)
    if nanos.denominator != 1:
        raise ValueError(f"{text} has more than nine decimals: nano-dollars are the smallest unit")
    return nanos.numerator


def _format_nanos(nanos: int) -> str:
    sign = "-" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), NANOS)
    decimals = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


@dataclass(frozen=True, slots=True, order=True)
class _Nanos:
    """Whole nano-dollars: what an amount and the prices have in common."""

    nanos: int

    @classmethod
    def parse(cls, text: str | int | Decimal) -> Self:
        """Parse a decimal string such as ``"912.60"``; ValueError if it is none or has over nine decimals."""
        return cls(_parse_nanos(text))

    def __str__(self) -> str:
        """Return the exact decimal string with two to nine decimals, the form that JSON carries."""
        return _format_nanos(self.nanos)

    def dollars(self) -> float:
        """Return it as a float, for ratios, plots and the solver only; never added up into money again."""
        return self.nanos / NANOS


@dataclass(frozen=True, slots=True, order=True)
class Usd(_Nanos):
    """An amount of US dollars, in whole nano-dollars (``nanos``); may be negative (a saving)."""

    @classmethod
    def total(cls, amounts: Iterable[Usd]) -> Self:
        """Return the exact sum; zero for no amounts."""
        return cls(sum(a.nanos for a in amounts))

    def __add__(self, other: Usd) -> Usd:
        return Usd(self.nanos + other.nanos)

    def __sub__(self, other: Usd) -> Usd:
        return Usd(self.nanos - other.nanos)

    def __neg__(self) -> Usd:
        return Usd(-self.nanos)

    def split(self, weights: Sequence[int]) -> tuple[Usd, ...]:
        """Return shares in proportion to ``weights`` (non-negative, not all zero) that add up to the whole.

        The largest-remainder method keeps each share within one nano-dollar of its exact value.
        """
        whole = sum(weights)
        if whole <= 0 or min(weights) < 0:
            raise ValueError("weights must be non-negative and not all zero")
        floors = [self.nanos * w // whole for w in weights]
        rests = [self.nanos * w % whole for w in weights]
        missing = self.nanos - sum(floors)
        for i in sorted(range(len(weights)), key=lambda i: (-rests[i], i))[:missing]:
            floors[i] += 1
        return tuple(Usd(n) for n in floors)


ZERO = Usd(0)


@dataclass(frozen=True, slots=True, order=True)
class UsdPerHour(_Nanos):
    """A price for an hour, in whole nano-dollars."""

    def __add__(self, other: UsdPerHour) -> UsdPerHour:
        return UsdPerHour(self.nanos + other.nanos)

    def times(self, count: int) -> UsdPerHour:
        """Return the price of ``count`` of them."""
        return UsdPerHour(self.nanos * count)

    def scaled(self, factor: Fraction | Decimal) -> UsdPerHour:
        """Return the price times an exact factor (a discount), rounded half to even to the nano-dollar."""
        exact = Fraction(factor) * self.nanos
        return UsdPerHour(divide_half_even(exact.numerator, exact.denominator))

    def over(self, duration: timedelta) -> Usd:
        """Return the cost of ``duration``: the one rounding, half to even, to the nano-dollar."""
        microseconds = duration // timedelta(microseconds=1)
        return Usd(divide_half_even(self.nanos * microseconds, _MICROSECONDS_PER_HOUR))


@dataclass(frozen=True, slots=True, order=True)
class UsdPerGb(_Nanos):
    """A price for moving one GB (1e9 bytes), in whole nano-dollars."""
