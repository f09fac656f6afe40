"""Checks of a plan's carbon: tonnes of every line from the tables, their worth, sums, and what is marked unknown."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pricing.book import PriceBook
from pricing.carbon import power_figures
from pricing.machines import Machine
from router.jobs.limits import Limits
from router.planning.document.plan import Line
from tests.support.plan_view import View
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


def check_carbon(view: View) -> Iterator[str]:
    """Without a weight nothing is said of carbon; with one every line has its grams and their worth."""
    plan, weight = view.plan, view.limits.carbon
    if weight is None:
        if plan.carbon is not None or any(line.grams_co2e is not None for line in plan.lines):
            yield "carbon is counted, and no weight is stated"
        return
    if plan.carbon is None:
        yield "a weight of carbon is stated, and the plan has no total"
        return
    if plan.carbon.usd_per_tonne != weight.usd_per_tonne:
        yield f"weight {plan.carbon.usd_per_tonne}, stated {weight.usd_per_tonne}"
    for line in plan.lines:
        machine = view.book.machine(line.cloud, line.instance_type)
        if machine is None or line.grams_co2e is None or line.carbon_usd is None:
            yield f"{line.job} {line.start}: no carbon"
            continue
        each, unknown = grams_per_hour(view.book, machine, line.cloud, line.region)
        grams = each * line.machines * line.hours
        grams += _fallback_grams(view, line)
        if abs(line.grams_co2e - grams) > Fraction(1, 2):
            yield f"{line.job} {line.start}: {line.grams_co2e} g, the tables say {float(grams)}"
        worth = grams * weight_per_gram(view.limits) * 10**9
        if abs(line.carbon_usd.nanos - worth) > 1 + line.hours:  # the price of an hour is rounded once
            yield f"{line.job} {line.start}: carbon worth {line.carbon_usd}, the tables say {float(worth) / 1e9}"
        if bool(line.carbon_doubt) != unknown:
            yield f"{line.job} {line.start}: doubt {line.carbon_doubt!r}, unknown {unknown}"
    if plan.carbon.grams_co2e != sum(line.grams_co2e or 0 for line in plan.lines):
        yield f"{plan.carbon.grams_co2e} g in all, lines do not add up to it"
    if plan.carbon.carbon_usd.nanos != sum(line.carbon_usd.nanos for line in plan.lines if line.carbon_usd):
        yield f"carbon worth {plan.carbon.carbon_usd} in all, lines do not add up to it"


def _fallback_grams(view: View, line: Line) -> Fraction:
    behind = line.fallback
    machine = None if behind is None else view.book.machine(behind.cloud, behind.instance_type)
    if behind is None or machine is None:
        return Fraction(0)
    return grams_per_hour(view.book, machine, behind.cloud, behind.region)[0] * behind.machines * behind.hours
