"""Compute what gangs cost others, which the objective counts and nobody pays: emissions at their weight. Pure.

Design note rules-of-the-plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from pricing.book import PriceBook
from pricing.carbon import GRAMS_PER_TONNE, EmissionTable, UnknownCarbonError
from pricing.machines import Machine
from pricing.money import Usd, UsdPerHour, divide_half_even
from pricing.places import Region
from pricing.problems import InvalidInputError
from router.jobs.limits import Limits

_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ExternalCost:
    """A gang's cost to others: exact grams of CO2e an hour, their dollars, and which figures are doubtful."""

    grams_per_hour: Fraction
    usd_per_hour: UsdPerHour
    doubt: str

    def grams_over(self, billed: timedelta) -> Fraction:
        """Return the grams that are emitted in the time billed."""
        return self.grams_per_hour * Fraction(billed // _MICRO, 3_600_000_000)


class ExternalCosts:
    """Weighs what gangs cost others; InvalidInputError where the book knows nothing of what the limits weigh."""

    def __init__(self, book: PriceBook, limits: Limits) -> None:
        self._usd_per_tonne = None if limits.carbon is None else limits.carbon.usd_per_tonne
        self._emissions = None if limits.carbon is None else _emission_table(book)

    @property
    def are_weighed(self) -> bool:
        """Return whether the limits weigh any cost to others."""
        return self._emissions is not None

    def of_machines(self, machines: Iterable[tuple[int, Machine, Region]]) -> ExternalCost | None:
        """Return the cost of a gang of so many machines each, each worth rounded once; None where none is weighed."""
        if self._emissions is None or self._usd_per_tonne is None:
            return None
        emissions = [(count, self._emissions.emission(machine, region)) for count, machine, region in machines]
        grams = [count * emission.grams_per_hour for count, emission in emissions]
        return ExternalCost(
            grams_per_hour=sum(grams, Fraction(0)),
            usd_per_hour=UsdPerHour(sum(_rate(each, self._usd_per_tonne).nanos for each in grams)),
            doubt="; ".join(dict.fromkeys(emission.doubt for _, emission in emissions if emission.doubt)),
        )


def _emission_table(book: PriceBook) -> EmissionTable:
    try:
        return EmissionTable(book)
    except UnknownCarbonError as error:
        raise InvalidInputError.single(
            str(error), where="limits", field="carbon", remedy="leave carbon out, or plan with another book"
        ) from None


def _rate(grams_per_hour: Fraction, usd_per_tonne: Usd) -> UsdPerHour:
    """Return what emissions count an hour, rounded half to even."""
    exact = grams_per_hour * usd_per_tonne.nanos / GRAMS_PER_TONNE
    return UsdPerHour(divide_half_even(exact.numerator, exact.denominator))
