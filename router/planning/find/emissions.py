"""Compute the emissions of gangs and what they count at the limits file's weight of carbon. Pure.

Design note rules-of-the-plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from pricing.book import PriceBook
from pricing.carbon import GRAMS_PER_TONNE, EmissionTable, UnknownCarbonError
from pricing.machines import Machine
from pricing.money import UsdPerHour, divide_half_even
from pricing.places import Region
from pricing.problems import InvalidInputError
from router.jobs.limits import Limits


@dataclass(frozen=True, slots=True)
class GangCarbon:
    """Emissions of a gang: exact grams of CO2e an hour, what they count in dollars, and which figures are doubtful."""

    grams_per_hour: Fraction
    usd_per_hour: UsdPerHour
    doubt: str


def emission_table(book: PriceBook, limits: Limits) -> EmissionTable | None:
    """Return the emissions of the book's machines; None where the limits state no weight of carbon.

    Raises InvalidInputError where the book knows no carbon at all.
    """
    if limits.carbon is None:
        return None
    try:
        return EmissionTable(book)
    except UnknownCarbonError as error:
        raise InvalidInputError.single(
            str(error), where="limits", field="carbon", remedy="leave carbon out, or plan with another book"
        ) from None


def carbon_rate(grams_per_hour: Fraction, limits: Limits) -> UsdPerHour:
    """Return what emissions count an hour at the weight of the limits, rounded half to even."""
    if limits.carbon is None:
        return UsdPerHour(0)
    exact = grams_per_hour * limits.carbon.usd_per_tonne.nanos / GRAMS_PER_TONNE
    return UsdPerHour(divide_half_even(exact.numerator, exact.denominator))


def gang_carbon(parts: Iterable[tuple[int, Machine, Region]], emissions: EmissionTable, limits: Limits) -> GangCarbon:
    """Return the emissions of a gang of these machines, the worth of each part rounded once."""
    found = [(machines, emissions.emission(machine, region)) for machines, machine, region in parts]
    grams = [machines * each.grams_per_hour for machines, each in found]
    return GangCarbon(
        grams_per_hour=sum(grams, Fraction(0)),
        usd_per_hour=UsdPerHour(sum(carbon_rate(each, limits).nanos for each in grams)),
        doubt="; ".join(dict.fromkeys(each.doubt for _, each in found if each.doubt)),
    )
