"""Emissions from the tables, their weight in the choice of places, and what plans say of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.carbon import EmissionTable, power_figures
from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.app.plan_rerun import run_what_if
from router.jobs.limits import Limits
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.what_if_syntax import parse_sweep, vary
from router.render.explain_text import job_text
from router.render.plan_text import table
from router.render.tonight_page import tonight_page
from router.render.what_if_text import as_csv, as_json, cost_plot
from router.render.what_if_text import table as what_if_table
from tests.support.made_up_book import offer
from tests.support.night import nightly_plan
from tests.support.scenes import ALPS, NORTH, a_job, a_request, places

DIRTY = {"aws/north-1": 700, "aws/south-1": None, "aws/alps-1": 30}
NORTH_CHEAP = offer("aws/north-1", "p9.48xlarge", "on_demand", "40")
SOUTH_CHEAP = offer("aws/south-1", "p9.48xlarge", "on_demand", "39")


def with_grids(book: PriceBook, grids: dict[str, int | None]) -> PriceBook:
    regions = [replace(r, grid_carbon_gco2_per_kwh=grids.get(str(r.id))) for r in book.regions]
    return replace(book, regions=tuple(regions))


def request_with(weight: str | None, offers: Any = (NORTH_CHEAP, ALPS), limits: Any = None, **job: Any) -> PlanRequest:
    content = dict(limits or {}) | ({} if weight is None else {"carbon": {"usd_per_tonne": weight}})
    request = a_request([a_job(**job)], list(offers), content)
    return replace(request, book=with_grids(request.book, DIRTY))


def plan_with(weight: str | None, **more: Any) -> Plan:
    return make_plan(request_with(weight, **more))


def test_a_machine_emits_power_times_overhead_times_grid() -> None:
    """8 x 700 W x 1.82 x 1.15 at 700 g/kWh."""
    book = request_with(None).book
    machine, region = book.machine("aws", "p9.48xlarge"), next(r for r in book.regions if str(r.id) == "aws/north-1")
    assert machine is not None
    found = EmissionTable(book).emission(machine, region)
    assert found.grams_per_hour == Fraction(56, 10) * Fraction(182, 100) * Fraction(115, 100) * 700
    assert found.doubt == ""


def test_what_is_unknown_counts_at_the_highest_known_and_is_marked() -> None:
    book = request_with(None).book
    accelerators = tuple(replace(a, tdp_w=None if a.name == "H100" else 400) for a in book.accelerators)
    book = replace(book, accelerators=accelerators)
    machine, regions = book.machine("aws", "p9.48xlarge"), {str(r.id): r for r in book.regions}
    assert machine is not None
    table_of = EmissionTable(book)
    south = table_of.emission(machine, regions["aws/south-1"])
    assert south.grams_per_hour == table_of.emission(machine, regions["aws/north-1"]).grams_per_hour
    assert south.doubt == "power of H100 unknown, counted as 400 W; carbon of aws/south-1 unknown, counted as 700 g/kWh"


def test_every_assumed_figure_has_source_and_date() -> None:
    assert all(figure.source and figure.as_of for figure in power_figures())
    assert {figure.name for figure in power_figures() if figure.cloud == "*"} == {"machine_overhead", "pue"}


def test_a_book_without_any_carbon_is_refused() -> None:
    request = a_request([a_job()], [NORTH], {"carbon": {"usd_per_tonne": "50"}})
    with pytest.raises(InvalidInputError, match="knows the carbon of no region"):
        make_plan(request)


def test_a_weight_moves_jobs_to_cleaner_grids_and_the_cost_stays_money() -> None:
    light, heavy = plan_with("50"), plan_with("2000")
    assert (places(light)["a"], places(heavy)["a"]) == ("aws/north-1 on_demand", "aws/alps-1 on_demand")
    assert light.carbon is not None
    assert heavy.carbon is not None
    assert heavy.carbon.grams_co2e < light.carbon.grams_co2e / 20
    assert heavy.cost_usd == Usd.total(line.cost_usd for line in heavy.lines)
    assert light.bound_usd <= light.objective_usd == light.cost_usd + light.carbon.carbon_usd
    assert light.jobs[0].runner_up is not None
    assert light.jobs[0].runner_up.cost_usd > light.cost_usd


def test_budgets_count_money_alone() -> None:
    cost = plan_with("2000").cost_usd
    limits = {"teams": [{"team": "red", "budget": str(cost)}]}
    assert places(plan_with("2000", limits=limits))["a"] == "aws/alps-1 on_demand"
    assert not plan_with("2000", budget=str(cost)).unplaced


@pytest.mark.slow
def test_without_a_weight_nothing_changes() -> None:
    content = plan_content(plan_with(None))
    assert "carbon" not in content
    assert all("grams_co2e" not in part for part in (*content["lines"], *content["jobs"]))
    zero = plan_with("0")
    assert places(zero) == places(plan_with(None))
    assert zero.carbon is not None
    assert (zero.carbon.carbon_usd, zero.carbon.grams_co2e > 0) == (Usd(0), True)
    assert "carbon" not in Limits.none().to_json()
    assert nightly_plan().carbon is None


def test_plans_carry_carbon_and_read_back() -> None:
    plan = plan_with("50", offers=(SOUTH_CHEAP,))
    assert plan_from_json(plan_to_json(plan)) == plan
    assert plan.lines[0].carbon_doubt == "carbon of aws/south-1 unknown, counted as 700 g/kWh"
    assert plan.carbon is not None
    shown = table(plan)
    assert f"{plan.carbon.tonnes:,.3f} t CO2e at $50.00 a tonne, never paid" in shown
    assert "t CO2e, counted as $" in job_text(plan, "a")
    assert "carbon of aws/south-1 unknown" in job_text(plan, "a")
    assert "carbon.grams_co2e" in tonight_page(plan)


def test_an_alternative_that_only_emits_more_is_explained() -> None:
    assert "would save $" in job_text(plan_with("2000"), "a")
    assert "and its carbon counts $" in " ".join(job_text(plan_with("2000"), "a").split())


def test_a_sweep_of_carbon_gives_the_curve_of_cost_and_tonnes() -> None:
    sweep = parse_sweep("carbon 0,50,2000")
    assert (sweep.name, sweep.unit) == ("carbon", "dollars a tonne of CO2e")
    found = run_what_if(request_with(None), vary((), (sweep,)), engine=_here())
    costs = [result.plan.cost_usd for result in found.variants]
    tonnes = [result.plan.carbon.tonnes for result in found.variants if result.plan.carbon is not None]
    assert costs == sorted(costs)
    assert tonnes == sorted(tonnes, reverse=True)
    assert costs[0] < costs[-1]
    assert "T CO2E" in what_if_table(found, ["carbon"])
    assert '"grams_co2e"' in as_json(found, ["carbon"])
    assert as_csv(found, ["carbon"]).splitlines()[0].count("grams_co2e") == 1
    picture = cost_plot(found, (sweep,))
    assert "tonnes of CO2e" in picture
    assert picture.count("<circle") == 3


def _here() -> Any:
    from router.app.parallel import parse_engine

    return parse_engine("processes", 1)


@pytest.mark.parametrize("text", ["carbon", "carbon a 5", "carbon -5", "carbon 5,5"])
def test_sweeps_of_carbon_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"sweep|twice|dollars|carbon|money|amount"):
        parse_sweep(text)
