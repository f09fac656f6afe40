"""Emissions worked out a second time, from the words of rules-of-the-plan.md and the figures of the tables alone."""

from __future__ import annotations

from fractions import Fraction

from pricing.book import PriceBook
from pricing.carbon import power_figures
from pricing.machines import Machine
from router.jobs.limits import Limits
from tests.support.schedules import CandidateLike


def grams_per_hour(book: PriceBook, machine: Machine, cloud: str, region: str) -> tuple[Fraction, bool]:
    """Grams of CO2e an hour of one machine, and whether something unknown was counted at the highest known figure."""
    here = next(r for r in book.regions if (r.id.cloud, r.id.region) == (cloud, region))
    everywhere = [(r.continent, r.grid_carbon_gco2_per_kwh) for r in book.regions if r.grid_carbon_gco2_per_kwh]
    beside = [grid for continent, grid in everywhere if continent == here.continent]
    grid = here.grid_carbon_gco2_per_kwh or max(beside or [grid for _, grid in everywhere])
    watts = {a.name: a.tdp_w for a in book.accelerators}
    power = watts[machine.accelerator] or max(w for w in watts.values() if w)
    overhead = next(f.value for f in power_figures() if f.name == "machine_overhead")
    pue = {f.cloud: f.value for f in power_figures() if f.name == "pue"}
    kilowatts = Fraction(power * machine.accelerator_count, 1000) * (1 + overhead) * pue.get(cloud, pue["*"])
    unknown = here.grid_carbon_gco2_per_kwh is None or watts[machine.accelerator] is None
    return kilowatts * grid, unknown


def counted_per_hour(candidate: CandidateLike, book: PriceBook, limits: Limits) -> float:
    """Dollars that an hour's emissions of a candidate count; nothing where no weight is stated."""
    weight = weight_per_gram(limits)
    if not weight:
        return 0.0
    place = (candidate.region.cloud, candidate.region.region)
    return float(
        weight * sum(grams_per_hour(book, part.machine, *place)[0] * part.machines for part in candidate.parts)
    )


def weight_per_gram(limits: Limits) -> Fraction:
    """Dollars for a gram; zero where the limits state no weight."""
    return Fraction(0) if limits.carbon is None else Fraction(limits.carbon.usd_per_tonne.nanos, 10**9) / 10**6
