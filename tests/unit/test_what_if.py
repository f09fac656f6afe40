"""Changes of a request and how they are written: each kind, what is refused, sweeps and their grid."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from pricing.problems import InvalidInputError
from router.planning.document.plan_json import plan_to_json
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.what_if import Change, LimitChange, RegionDrop, Variant, apply_changes
from router.planning.what_if.what_if_comparison import change_of_cost, compare_variants
from router.planning.what_if.what_if_syntax import parse_change, parse_sweep, vary
from tests.support.what_if_requests import OFFERS, small_request

REQUEST = small_request()


def changed(*written: str) -> PlanRequest:
    """The request after changes written as on the command line: ``--limit NAME=8``."""
    return apply_changes(REQUEST, [parse_change(*words.split(" ", 1)) for words in written])


@pytest.mark.parametrize(
    ("written", "amount"),
    [("north p9 spot=24", 24), ("north p9 spot+16", 24), ("north p9 spot x 1.6", 12), ("north p9 spotx0", 0)],
)
def test_a_limit_is_set_raised_or_multiplied(written: str, amount: int) -> None:
    limits = changed(f"--limit {written}").limits.limits
    assert [limit.amount for limit in limits] == [amount, 16]


def test_a_limit_whose_name_reads_like_a_change_can_be_changed() -> None:
    assert parse_change("--limit", "a9 x8+=32") == LimitChange("a9 x8+", "=", Decimal(32))
    assert [limit.amount for limit in changed("--limit a9 x8++4").limits.limits] == [8, 20]


@pytest.mark.parametrize(
    ("scope", "prices"),
    [
        ("aws", ["16", "48", "51.20", "70"]),
        ("aws/north-1", ["16", "48", "64", "70"]),
        ("gcp/lake-1/a9-highgpu-8g", ["20", "60", "64", "56"]),
        ("spot", ["16", "60", "64", "70"]),
        ("on-demand", ["20", "48", "51.20", "56"]),
    ],
)
def test_a_factor_counts_for_the_offers_of_its_scope(scope: str, prices: list[str]) -> None:
    book = changed(f"--price {scope}*0.8").book
    found = {offer.key: offer.usd_per_hour for offer in book.offers}
    assert [found[offer.key] for offer in OFFERS] == [UsdPerHour.parse(price) for price in prices]
    assert book.digest != REQUEST.book.digest


def test_a_dropped_region_has_no_offers_and_no_reservations() -> None:
    after = changed("--drop-region aws/south-1")
    assert {str(offer.region_id) for offer in after.book.offers} == {"aws/north-1", "gcp/lake-1"}
    assert after.limits.reservations == ()
    assert changed("--drop-region aws/alps-1").book is REQUEST.book


def test_deadlines_move_where_there_are_some() -> None:
    def deadlines(*written: str) -> list[str]:
        return [str(job.deadline) for job in changed(*written).jobs]

    assert deadlines() == ["+12h", "2026-11-22T08:00:00Z", "None"]
    assert deadlines("--deadline all+6h") == ["+18h", "2026-11-22T14:00:00Z", "None"]
    assert deadlines("--deadline llama-7b-1h30m") == ["+10h30m", "2026-11-22T08:00:00Z", "None"]
    assert deadlines("--deadline mpt-13b+1d", "--deadline all+1h") == ["+13h", "2026-11-23T09:00:00Z", "None"]


def test_budget_confidence_and_dropped_job() -> None:
    after = changed("--budget red=7000", "--budget blue=$90.50", "--confidence tts=0.8", "--drop-job mpt-13b")
    assert {entry.team: str(entry.budget) for entry in after.limits.teams} == {"red": "7000.00", "blue": "90.50"}
    assert [(job.name, job.confidence) for job in after.jobs] == [("llama-7b", 0.95), ("tts", 0.8)]


def test_interruptions_are_taken_at_an_end_of_their_interval() -> None:
    low, high = changed("--interruptions low"), changed("--interruptions high")
    assert (REQUEST.risk_quantile, low.risk_quantile, high.risk_quantile) == (None, 0.1, 0.9)
    rates = [
        max(c.gang_risk.hazard.mean for c in request.finder().find(request.jobs[0])[0])
        for request in (low, REQUEST, high)
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[1]


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--limit", "north p9 sport=8", "there is no limit 'north p9 sport' (did you mean north p9 spot?)"),
        ("--limit", "north p9 spot", "changes no limit (write NAME=AMOUNT, NAME+MORE or NAMExFACTOR)"),
        ("--limit", "north p9 spot=8.5", "8.5 is not a whole number"),
        ("--limit", "north p9 spotx9999", "more than 1,000 times"),
        ("--price", "azzure*2", "there is no cloud, region, machine type or market 'azzure'"),
        ("--price", "aws/north-2*2", "did you mean aws/north-1?"),
        ("--price", "aws/north-1/p9.48xlrge*2", "did you mean aws/north-1/p9.48xlarge?"),
        ("--price", "aws*0", "0 would make machines free"),
        ("--price", "aws", "changes no price (write SCOPE*FACTOR"),
        ("--drop-region", "aws/nort-1", "there is no region 'aws/nort-1' (did you mean aws/north-1?)"),
        ("--drop-region", "aws", "is not cloud/region"),
        ("--deadline", "lama-7b+6h", "there is no job 'lama-7b' (did you mean llama-7b?)"),
        ("--deadline", "tts+6h", "job tts has no deadline to move"),
        ("--deadline", "all+400d", "is more than 366 days away"),
        ("--deadline", "all", "moves no deadline (write JOB+6h, JOB-6h or all+6h)"),
        ("--budget", "reds=5", "there is no team 'reds' (did you mean red?)"),
        ("--budget", "red", "changes no budget (write TEAM=15000)"),
        ("--budget", "red=-4", "is negative"),
        ("--confidence", "tts=1", "'1' is no confidence (write a number from 0.5 to 0.999)"),
        ("--interruptions", "lowest", "'lowest' is no end of an interval (write low or high)"),
        ("--drop-job", "mpt-31b", "there is no job 'mpt-31b' (did you mean mpt-13b?)"),
    ],
)
def test_a_refusal_names_the_option_and_the_nearest_known_name(option: str, text: str, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        changed(f"{option} {text}")
    assert [problem.field for problem in caught.value.problems] == [option]
    assert words in str(caught.value)


def test_every_unknown_name_is_reported_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        changed("--drop-job nobody", "--budget nobodys=3", "--price aws*2")
    assert [problem.field for problem in caught.value.problems] == ["--drop-job", "--budget"]


@pytest.mark.parametrize(
    ("text", "name", "unit", "at"),
    [
        ("deadline all +0h,+90m,-1d", "deadline all", "hours later", [0, 1.5, -24]),
        ("limit 'north p9 spot' 8,16", "limit north p9 spot", "amount", [8, 16]),
        ("limit 'a9 x8+' x1,x2", "limit a9 x8+", "times as much", [1, 2]),
        ("price aws/north-1 0.8,1.0", "price aws/north-1", "times the price", [0.8, 1]),
        ("budget red 3000,$4000", "budget red", "dollars", [3000, 4000]),
        ("confidence tts 0.9,0.95", "confidence tts", "confidence", [0.9, 0.95]),
    ],
)
def test_a_sweep_has_its_values_in_the_order_written(text: str, name: str, unit: str, at: list[float]) -> None:
    sweep = parse_sweep(text)
    assert (sweep.name, sweep.unit, [value.at for value in sweep.values]) == (name, unit, at)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deadlin all +1h", "'deadlin' cannot be swept (did you mean deadline?)"),
        ("", "'' cannot be swept"),
        ("limit north p9 spot 8", "three words are needed, 5 are there"),
        ("limit 'north p9 8", "a quotation mark without its end"),
        ("limit a 8,+16", "mixes amounts, additions and factors"),
        ("deadline all +1h,+60m", "has a value twice"),
        ("deadline all +1h,", "moves no deadline"),
    ],
)
def test_a_bad_sweep_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match="--sweep") as caught:
        parse_sweep(text)
    assert words in str(caught.value)


def test_two_sweeps_give_their_grid_after_the_fixed_changes() -> None:
    fixed = parse_change("--drop-job", "tts")
    variants = vary([fixed], [parse_sweep("deadline all +0h,+6h"), parse_sweep("price spot 1,2")])
    assert [variant.at for variant in variants] == [(0, 1), (0, 2), (6, 1), (6, 2)]
    assert variants[1].name == "deadline all +0h; price spot 2"
    assert all(variant.changes[0] == fixed for variant in variants)
    assert len({variant.changes for variant in variants}) == 4


def test_what_cannot_be_varied_is_refused() -> None:
    one, other = parse_sweep("deadline all +0h"), parse_sweep("price spot 1")
    many = replace(one, values=one.values * 40)
    for sweeps, words in (
        ([], "nothing is changed"),
        ([one, one], "swept twice"),
        ([one, other, one], "more than two"),
        ([many, replace(other, values=other.values * 40)], "gives 1,600 plans"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            vary([], sweeps)


@pytest.mark.parametrize(
    "written",
    ["--price aws*1.0", "--deadline all+0h", "--limit a9 x8+x1", "--budget red=5000", "--confidence all=0.95"],
)
def test_a_change_that_changes_nothing_gives_the_same_plan(written: str) -> None:
    assert plan_to_json(make_plan(changed(written))) == plan_to_json(make_plan(REQUEST))


def test_a_comparison_says_what_moved_and_who_is_left_out() -> None:
    base = make_plan(REQUEST)
    changes: tuple[Change, ...] = (parse_change("--price", "spot*2"), parse_change("--deadline", "llama-7b-10h"))
    dear = make_plan(apply_changes(REQUEST, changes))
    result = compare_variants(base, [(Variant("dear", changes), dear)]).variants[0]
    assert (result.newly_unplaced, result.newly_placed, result.placed) == (("llama-7b",), (), 2)
    assert result.difference == dear.cost_usd - base.cost_usd
    sizes = [abs(change_of_cost(move).nanos) for move in result.moves]
    assert sizes == sorted(sizes, reverse=True)
    assert "llama-7b" in {move.job for move in result.moves}
    back = compare_variants(dear, [(Variant("back", ()), base)]).variants[0]
    assert (back.newly_unplaced, back.newly_placed, back.placed) == ((), ("llama-7b",), 3)
    without = make_plan(apply_changes(REQUEST, [parse_change("--drop-job", "llama-7b")]))
    gone = compare_variants(dear, [(Variant("gone", ()), without)]).variants[0]
    assert (gone.newly_placed, "llama-7b" in {move.job for move in gone.moves}) == ((), False)


def test_a_dropped_region_is_not_planned_on() -> None:
    base = make_plan(REQUEST)
    used = {f"{line.cloud}/{line.region}" for line in base.lines}
    assert used
    for region in REQUEST.book.regions:
        plan = make_plan(apply_changes(REQUEST, [RegionDrop(region.id)]))
        assert str(region.id) not in {f"{line.cloud}/{line.region}" for line in plan.lines}
        if str(region.id) not in used:
            assert plan.cost_usd == base.cost_usd


def test_reserved_is_a_market_only_where_it_is_for_sale() -> None:
    assert Market.RESERVED not in {offer.market for offer in REQUEST.book.offers}
    with pytest.raises(InvalidInputError, match="market 'reserved'"):
        changed("--price reserved*2")


def test_a_deadline_can_be_so_early_that_nothing_is_placed() -> None:
    plan = make_plan(apply_changes(REQUEST, [parse_change("--deadline", "all-3d")]))
    assert [item.job for item in plan.unplaced] == ["llama-7b", "mpt-13b"]
