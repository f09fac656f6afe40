"""Convert amounts into another currency, at a rate that somebody named. Pure.

Without a rate a currency stands apart: two are never added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from router.showback.apportion import round_fraction
from router.showback.reconcile.aggregates import FactAggregate
from router.showback.reconcile.outcome import PriceComparison

_PLACES = 24


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """A rate of exchange: one unit of a currency is ``rate`` of ``into``.

    Reports have to name its day and its source.
    """

    into: str
    rate: Decimal
    as_of: date
    source: str


def convert_currencies(
    aggregates: Iterable[FactAggregate], rates: Mapping[str, ExchangeRate]
) -> tuple[FactAggregate, ...]:
    """Convert the aggregates of the currencies that ``rates`` has, rounded at the 24th digit; the others stay."""
    return tuple(_convert(aggregate, rates.get(aggregate.currency)) for aggregate in aggregates)


def convert_comparisons(
    comparisons: Iterable[PriceComparison], rates: Mapping[str, ExchangeRate]
) -> tuple[PriceComparison, ...]:
    """Convert either side of the comparisons whose currency ``rates`` has; the others stay."""
    return tuple(_convert_comparison(each, rates) for each in comparisons)


def _convert_comparison(comparison: PriceComparison, rates: Mapping[str, ExchangeRate]) -> PriceComparison:
    billed, metered = rates.get(comparison.currency), rates.get(comparison.metered_currency)
    if billed is not None:
        comparison = replace(comparison, currency=billed.into, invoiced=_at_rate(comparison.invoiced, billed))
    if metered is not None:
        comparison = replace(comparison, metered_currency=metered.into, metered=_at_rate(comparison.metered, metered))
    return comparison


def _convert(aggregate: FactAggregate, rate: ExchangeRate | None) -> FactAggregate:
    if rate is None:
        return aggregate
    money = None if aggregate.money is None else _at_rate(aggregate.money, rate)
    return replace(aggregate, currency=rate.into, money=money)


def _at_rate(money: Decimal, rate: ExchangeRate) -> Decimal:
    return round_fraction(Fraction(money) * Fraction(rate.rate), _PLACES)
