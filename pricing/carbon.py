"""Emissions of machines: their power, the overhead of their data centre, and the carbon of their region's grid.

Grid intensities are in ``tables/regions.csv`` and the power of accelerators in ``tables/accelerators.csv``, each row
with source and date. The factors of ``tables/power_factors.csv`` are assumptions: design note rules-of-the-plan says
what they miss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from pricing.book import PriceBook
from pricing.machines import Machine
from pricing.places import Region
from pricing.table_rows import parse_rows, read_table

GRAMS_PER_TONNE = 1_000_000


@dataclass(frozen=True, slots=True)
class PowerFigure:
    """An assumed figure with its source and date; ``cloud`` is ``*`` where no cloud has one of its own."""

    name: str
    cloud: str
    value: Fraction
    source: str
    as_of: str


@cache
def power_figures() -> tuple[PowerFigure, ...]:
    """Return the rows of ``tables/power_factors.csv``."""
    return parse_rows(PowerFigure, read_table("power_factors"))


@dataclass(frozen=True, slots=True)
class Emission:
    """Grams of CO2e that one machine emits in an hour, exactly.

    ``doubt`` names the figures that stand in for unknown ones.
    """

    grams_per_hour: Fraction
    doubt: str


class UnknownCarbonError(LookupError):
    """The price book has no grid intensity or no power at all, so that nothing can stand in for what is unknown."""


def power_figure(name: str, cloud: str) -> Fraction:
    """Return the cloud's own figure, else the one for all clouds."""
    found = {figure.cloud: figure.value for figure in power_figures() if figure.name == name}
    return found.get(cloud, found["*"])


class EmissionTable:
    """Emissions of the machines and regions of one price book.

    An unknown intensity counts as the highest known one of the continent (of the book where the continent has none), an
    unknown power as the highest known one: never as zero. Raises UnknownCarbonError where the book knows none.
    """

    def __init__(self, book: PriceBook) -> None:
        known = [(r.continent, r.grid_carbon_gco2_per_kwh) for r in book.regions]
        self._highest = _highest(known)
        self._highest_power = max((a.tdp_w for a in book.accelerators if a.tdp_w is not None), default=None)
        self._power = {a.name: a.tdp_w for a in book.accelerators}
        if not self._highest or self._highest_power is None:
            raise UnknownCarbonError("the price book knows the carbon of no region, or the power of no accelerator")

    def emission(self, machine: Machine, region: Region) -> Emission:
        """Return what one machine emits in an hour in the region, at the rated power of its accelerators."""
        doubts = []
        power = self._power.get(machine.accelerator)
        if power is None:
            power = self._highest_power or 0
            doubts.append(f"power of {machine.accelerator} unknown, counted as {power} W")
        grid = region.grid_carbon_gco2_per_kwh
        if grid is None:
            grid = self._highest.get(region.continent) or max(self._highest.values())
            doubts.append(f"carbon of {region.id} unknown, counted as {grid} g/kWh")
        cloud = machine.cloud
        watts = machine.accelerator_count * power * (1 + power_figure("machine_overhead", cloud))
        return Emission(watts * power_figure("pue", cloud) * grid / 1000, "; ".join(doubts))


def _highest(intensities: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    by_continent: dict[str, int] = {}
    for continent, grid in intensities:
        if grid is not None:
            by_continent[continent] = max(by_continent.get(continent, 0), grid)
    return by_continent
