"""Amounts in another currency, at a rate that somebody named. Pure.

Without a rate a currency stands apart: two are never added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from router.showback.reconcile.aggregates import Grain
from router.showback.reconcile.rounding import rounded

_PLACES = 24


@dataclass(frozen=True, slots=True)
class Rate:
    """One unit of a currency is ``rate`` of ``into``, as of a day and a source that reports have to name."""

    into: str
    rate: Decimal
    as_of: date
    source: str


def converted(grains: Iterable[Grain], rates: Mapping[str, Rate]) -> tuple[Grain, ...]:
    """The grains of the currencies that ``rates`` has, in those they convert into, rounded at the 24th digit; the
    others as they are."""
    return tuple(_converted(grain, rates.get(grain.currency)) for grain in grains)


def _converted(grain: Grain, rate: Rate | None) -> Grain:
    if rate is None:
        return grain
    money = None if grain.money is None else rounded(Fraction(grain.money) * Fraction(rate.rate), _PLACES)
    return replace(grain, currency=rate.into, money=money)
