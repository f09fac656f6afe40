"""A job's cap on the price of an accelerator-hour: offers, cores, reservations, fallbacks, ceilings and quotes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from router.planning.planner import make_plan
from router.planning.what_if.constraint_prices import constraint_prices
from router.planning.what_if.what_if import PriceScaling
from router.planning.what_if.what_if_syntax import parse_change
from router.render.explain_text import job_text
from tests.support.asked_quotes import a_quote, refused
from tests.support.checker import check_plan
from tests.support.made_up_jobs import simple_job
from tests.support.narrowed import present, typed
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job, a_request, found_for, plan_of

HERE = "aws/north-1/p9.48xlarge/on_demandx8"
SPOT = "aws/north-1/p9.48xlarge/spotx8"
RESERVED = "aws/north-1/p9.48xlarge/reserved(own)x8"


def test_offers_up_to_the_cap_are_kept_in_each_market() -> None:
    """They cost 7.50, 6.25 and 3 dollars an accelerator-hour."""
    offers = [NORTH, SOUTH, NORTH_SPOT]
    assert len(found_for(a_job(max_price="7.50"), offers)[0]) == 3
    kept, dropped = found_for(a_job(max_price="7.49"), offers)
    assert HERE not in kept
    assert [(drop.code, drop.reason) for drop in dropped] == [
        ("max price", "$7.5 an accelerator-hour, max_price allows $7.49")
    ]
    assert [c.market for c in found_for(a_job(max_price=3), offers)[0].values()] == [Market.SPOT]
    assert found_for(a_job(max_price=2.99), offers)[0] == {}


def test_the_price_after_discounts_counts() -> None:
    limits = {"discounts": [{"cloud": "aws", "percent": 20}]}
    assert HERE in found_for(a_job(max_price=6), [NORTH], limits)[0]
    assert HERE not in found_for(a_job(max_price=5.99), [NORTH], limits)[0]


@pytest.mark.parametrize(
    ("price", "cap", "words"),
    [
        ({"usd_per_hour": "32"}, 4, ""),
        ({"usd_per_hour": "32"}, 3.99, "$4 an accelerator-hour, max_price allows $3.99"),
        ({"sunk": True}, 0.01, ""),
        ({}, 100, "what own really costs is unknown"),
    ],
)
def test_a_reservation_counts_at_what_it_really_costs(price: dict[str, Any], cap: float, words: str) -> None:
    own = {"name": "own", "cloud": "aws", "region": "north-1", "instance_type": "p9.48xlarge", "machines": 1, **price}
    kept, dropped = found_for(a_job(max_price=cap), [], {"reservations": [own]})
    assert list(kept) == ([] if words else [RESERVED])
    assert words in "".join(drop.reason for drop in dropped)


def test_an_on_demand_core_counts_too() -> None:
    job = simple_job("b", ("H100", 32), steps=300, steps_per_hour=300, on_demand_share=0.3, max_price=7)
    kept, dropped = found_for(job, [NORTH, NORTH_SPOT])
    assert kept == {}
    assert {drop.code for drop in dropped} == {"max price"}
    assert len(found_for(job.model_copy(update={"max_price": UsdPerHour.parse("7.5")}), [NORTH, NORTH_SPOT])[0]) == 2


def test_a_fallback_above_the_cap_is_none() -> None:
    """The fallback of its region costs 7.50; that of another one, 6.25, is behind it where the cap rules it out."""
    offers = [NORTH, NORTH_SPOT, SOUTH]
    fallbacks = {cap: found_for(a_job(deadline="+8h", max_price=cap), offers)[0][SPOT].fallback for cap in (8, 7, 6)}
    assert present(fallbacks[8]).key == HERE
    assert str(present(fallbacks[7]).region) == "aws/south-1"
    assert fallbacks[6] is None


def test_a_spot_line_is_never_bought_above_the_cap() -> None:
    job = a_job(max_price=5)
    (line,) = plan_of([job], [NORTH, NORTH_SPOT]).lines
    assert line.market == Market.SPOT
    assert (line.max_usd_per_hour, line.fallback) == (UsdPerHour.parse("40"), None)
    (free,) = plan_of([a_job()], [NORTH, NORTH_SPOT]).lines
    assert free.max_usd_per_hour == UsdPerHour.parse("60")


def test_the_checker_finds_lines_and_fallbacks_above_the_cap() -> None:
    request = a_request([a_job(max_price=8)], [NORTH, NORTH_SPOT])
    plan = make_plan(request)
    assert plan.lines[0].fallback is not None
    assert check_plan(plan, request.jobs, request.book, request.limits) == []
    tighter = (a_job(max_price=5),)
    problems = check_plan(plan, tighter, request.book, request.limits)
    assert any("falls back on" in problem for problem in problems)
    assert any("its ceiling is" in problem for problem in problems)
    tightest = check_plan(plan, (a_job(max_price=2),), request.book, request.limits)
    assert any("pays 24" in problem for problem in tightest)


def test_a_job_that_nothing_is_cheap_enough_for_is_told_why_and_what_would_do() -> None:
    plan = plan_of([a_job(max_price=5)], [NORTH])
    (left,) = plan.unplaced
    assert "max price drops 1" in left.reason
    assert "$7.5 an accelerator-hour, max_price allows $5" in left.reason
    told = " ".join(job_text(plan, "a").split())
    assert "1 dearer than max_price" in told
    assert "it would fit with max_price $7.50" in told


def test_its_cost_is_priced_as_that_of_other_rules() -> None:
    (price,) = constraint_prices(a_request([a_job(max_price=7.5, spot="never")], [NORTH, SOUTH]), "a")[1:]
    assert (price.rule, price.basis, price.saves_usd.nanos) == ("max_price", "resolved", 0)


def test_a_quote_keeps_to_it() -> None:
    assert {place.market for place in a_quote(a_job(max_price=5), 24, [NORTH, NORTH_SPOT]).places} == {"spot"}
    free = a_quote(a_job(), 24, [NORTH, NORTH_SPOT])
    assert {place.market for place in free.places} == {"spot", "on_demand"}
    assert a_quote(a_job(max_price=8), 24, [NORTH, NORTH_SPOT]).usd == free.usd
    assert "max price drops 1" in refused(a_job(max_price=5), 24, [NORTH]).what


def test_what_ifs_change_prices_and_not_the_cap() -> None:
    request = a_request([a_job(max_price=7.5, spot="never")], [NORTH])
    change = typed(PriceScaling, parse_change("--price", "aws*1.1"))
    assert make_plan(change.apply(request)).unplaced[0].job == "a"
    free = replace(request, jobs=(a_job(spot="never"),))
    assert make_plan(change.apply(free)).cost_usd.nanos == round(make_plan(free).cost_usd.nanos * 1.1)


def test_a_job_without_it_keeps_its_digest() -> None:
    assert "max_price" not in a_job().model_dump(exclude_defaults=True)
    assert a_job().digest != a_job(max_price=5).digest
