"""Relaxations are promises: the rule changed as they say, the job is placed, at the cost they state or less."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from pricing.money import Usd
from pricing.offers import Offer
from pricing.places import Market
from router.app.plan import PlanOptions, plan_request
from router.jobs.spec import Job, MarketRule
from router.planning.document.plan import Plan, Relaxation
from router.planning.document.plan_schema import plan_schema_text
from router.planning.find.candidates import CandidateFinder
from router.planning.planner import PlanRequest, make_plan
from router.render.plan_text import table
from router.render.tables import format_usd
from tests.support.changed_requests import relaxed
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.night import NOW
from tests.support.repository import ROOT
from tests.support.scenes import ALPS, LAKE, NORTH, NORTH_SPOT, SOUTH, a_job, a_request
from tests.support.scenes import NOW as SCENE_NOW

EXAMPLES = ("deadline-too-tight", "budget-too-small", "residency-nobody-satisfies")
DATA = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 90}
ONE = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=1)


def kept(request: PlanRequest, plan: Plan, name: str) -> list[str]:
    """Applies every relaxation of the job, checks that it is placed by it, and returns the changes."""
    left = next(u for u in plan.unplaced if u.job == name)
    others = {j.job for j in plan.jobs if j.finish is not None}
    for found in left.relaxations:
        after = make_plan(relaxed(request, name, found))
        assert {u.job for u in after.unplaced} == {u.job for u in plan.unplaced} - {name}, found
        assert others <= {j.job for j in after.jobs if j.finish is not None}, found
        placed = next(j for j in after.jobs if j.job == name)
        assert found.cost_usd is not None
        if not others:
            tolerance = Usd(round(found.cost_usd.nanos * 0.005) + 1000)
            assert placed.cost_usd <= found.cost_usd + tolerance, found
    return [found.change for found in left.relaxations]


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_instructive_examples_are_told_is_enough(name: str) -> None:
    path = str(ROOT / "examples" / "instructive" / f"{name}.yaml")
    request = plan_request([path], "embedded", None, NOW, PlanOptions()).request
    plan = make_plan(request)
    assert (plan.status, len(plan.unplaced)) == ("infeasible", 1)
    assert plan.unplaced[0].reason != ""
    assert kept(request, plan, name) != []


def test_figures_of_relaxations_are_upper_ends_and_say_so_in_text_and_json() -> None:
    """The others are held in place: planned again with them, less may do."""
    plan = make_plan(a_request([a_job(budget="$100")], [NORTH, SOUTH], resolve_limits=0))
    (left,) = plan.unplaced
    (found,) = left.relaxations
    assert found.cost_usd is not None
    shown = " ".join(table(plan).split())
    assert f"it would fit with {found.change}: {found.detail} ({format_usd(found.cost_usd)} expected, or less)" in shown
    assert "with all other jobs where they are: planned again, less may do" in shown
    described = json.loads(plan_schema_text())["$defs"]["relaxation"]
    assert "upper ends" in described["description"]
    said = {name: part["description"].lower() for name, part in described["properties"].items()}
    assert {name for name, words in said.items() if "at most" in words} == {"change", "cost_usd"}


def checked(jobs: Sequence[Job], offers: Sequence[Offer], limits: Any = None, name: str = "a") -> list[str]:
    request = a_request(jobs, offers, limits, resolve_limits=0)
    return kept(request, make_plan(request), name)


def test_a_deadline_is_moved_by_as_few_hours_as_do() -> None:
    assert checked([a_job(deadline="+2h")], [NORTH, SOUTH]) == ["+2 h"]
    request = a_request([a_job(deadline="+3h")], [NORTH])
    assert [u.job for u in make_plan(request).unplaced] == ["a"]


def test_a_deadline_far_beyond_the_horizon() -> None:
    (change,) = checked([a_job(steps=3000, deadline="+20h")], [NORTH])
    assert change == "+11 h"


def test_a_budget_is_raised_by_what_is_missing() -> None:
    (change,) = checked([a_job(budget="$100")], [NORTH, SOUTH])
    assert change.startswith("+$60.")


def test_a_budget_that_must_pay_for_moves_is_raised_by_their_dearest_price() -> None:
    """Budgets count moves at their dearest tier, so the raise must too, free allowance or not."""
    assert checked([a_job(budget="$100", data=DATA)], [LAKE]) != []


def test_a_teams_budget() -> None:
    limits = {"teams": [{"team": "red", "budget": "$100", "spent": "$20"}]}
    (change,) = checked([a_job()], [NORTH], limits)
    assert change.startswith("+$112.")


def test_a_teams_budget_that_others_used_up() -> None:
    limits = {"teams": [{"team": "red", "budget": "$250"}]}
    assert checked([a_job(priority=-1), a_job("b")], [NORTH], limits) != []


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"residency": {"allow": ["DE"]}}, "allow aws/south-1"),
        ({"residency": {"deny": ["US"]}, "deadline": "+9h"}, "allow aws/south-1"),
        ({"spot": "only"}, "allow on-demand"),
        ({"data": {**DATA, "at": "aws/alps-1", "egress_cap": {"gib": 10}}}, "raise the egress cap to 90 GiB"),
    ],
)
def test_a_rule_about_places_or_markets(fields: dict[str, Any], change: str) -> None:
    assert checked([a_job(**fields)], [NORTH, SOUTH]) == [change]


def test_spot_alone_that_is_not_sure_enough_is_told_what_it_costs_with_on_demand_behind_it() -> None:
    job = a_job(steps=600, spot="only", deadline="+8h")
    request = a_request([job], [NORTH, NORTH_SPOT], resolve_limits=0)
    plan = make_plan(request)
    found = next(r for r in plan.unplaced[0].relaxations if r.change == "allow on-demand")
    after = make_plan(relaxed(request, "a", found))
    assert found.detail == "then aws/north-1/p9.48xlarge/spotx8"
    assert found.cost_usd is not None
    assert abs((after.cost_usd - found.cost_usd).dollars()) < 0.01 * found.cost_usd.dollars()


def test_spot_where_it_was_forbidden() -> None:
    assert checked([a_job(spot="never")], [NORTH_SPOT]) == ["allow spot"]


def test_saves_that_are_too_far_apart_to_be_so_sure() -> None:
    job = a_job(steps=2000, deadline="+22h", confidence=0.999)
    assert checked([job], [NORTH]) == ["+3 h", "checkpoint interval 1h"]
    often = a_job(steps=2000, deadline="+22h", confidence=0.999, checkpoint={"size_gib": 10, "interval": "2h"})
    assert checked([often], [NORTH]) == ["+1 h"], "whoever states an interval has chosen it"


def test_a_cap_on_prices_that_nothing_is_below_is_raised_by_as_little_as_does() -> None:
    assert checked([a_job(max_price=5)], [NORTH, SOUTH]) == ["max_price $6.25"]


def test_a_fabric_that_nobody_has() -> None:
    slow = offer("aws/north-1", "g9.48xlarge", "on_demand", "30")
    job = a_job()
    point = {"accelerator": "A100-80GB", "count": 16, "steps_per_hour": 100, "fabric": "ethernet"}
    fields = {
        "workload": {"profile": [point]},
        "gang": {"options": ["A100-80GB:16"], "rdma": "required"},
        "name": "a",
        "team": "red",
        "steps": 300,
        "checkpoint": job.checkpoint,
    }
    assert checked([Job.model_validate(fields)], [slow]) == ["do without an RDMA fabric"]


def test_a_shape_that_nobody_sells() -> None:
    assert checked([a_job(machines=2)], [NORTH]) == ["any number of machines"]


def test_more_of_a_limit_that_others_hold() -> None:
    limits = {"limits": [{"name": "quota", "amount": 8, "unit": "accelerators"}]}
    jobs = [a_job("a", deadline="+4h"), a_job("b", deadline="+4h", priority=1)]
    changes = checked(jobs, [NORTH], limits)
    assert "+8 accelerators of quota" in changes
    assert "+4 h" in changes


def test_more_machines_of_an_offer_that_others_hold() -> None:
    jobs = [a_job("a", deadline="+4h"), a_job("b", deadline="+4h", priority=1)]
    assert "+1 machines of capacity aws/north-1/p9.48xlarge/on_demand" in checked(jobs, [ONE])


def test_a_wider_rule_does_not_send_it_where_others_are() -> None:
    """The place that the rule would open is taken by a job of the same hours: opening it is not enough."""
    jobs = [a_job("a", deadline="+4h", residency={"allow": ["DE"]}), a_job("b", deadline="+4h", priority=1)]
    assert "allow aws/north-1" not in checked(jobs, [ONE])


def test_another_region_is_allowed_where_the_cheapest_alone_does_not_do() -> None:
    """Spot in the south is cheapest with the north behind it, and alone not sure enough."""
    spot = offer("aws/south-1", "p9.48xlarge", "spot", "5")
    job = a_job(steps=600, deadline="+8h", residency={"allow": ["DE"]})
    assert checked([job], [spot, NORTH]) == ["allow aws/north-1"]


def test_a_job_without_deadline_whose_rule_nobody_satisfies_beside_others() -> None:
    jobs = [a_job("a", steps=700, residency={"allow": ["DE"]}), a_job("b", steps=50)]
    assert checked(jobs, [NORTH]) == ["allow aws/north-1"]


def test_two_rules_at_once_are_not_relaxed_one_by_one() -> None:
    job = a_job(residency={"allow": ["DE"]}, spot="only", deadline="+6h")
    assert checked([job], [NORTH]) == []
    assert checked([a_job(deadline="+1h", residency={"allow": ["DE"]})], [NORTH, ALPS]) == ["+3 h"]


AT_ONCE: dict[str, Any] = {"deadline": None, "max_wait": "0s"}


def test_a_job_that_must_start_at_once_starts_at_once() -> None:
    plan = make_plan(a_request([a_job(**AT_ONCE)], [NORTH]))
    assert plan.unplaced == ()
    assert [line.start for line in plan.lines] == [SCENE_NOW]


def test_a_job_that_must_start_at_once_starts_at_its_earliest_start() -> None:
    """Off the grid of slots: the earliest start is an edge of its own."""
    plan = make_plan(a_request([a_job(earliest_start="+90m", **AT_ONCE)], [NORTH]))
    assert [line.start for line in plan.lines] == [SCENE_NOW + timedelta(minutes=90)]


@pytest.mark.parametrize(("max_wait", "change"), [("0s", "max_wait 5h"), ("2h", "max_wait 5h"), ("4h", "max_wait 5h")])
def test_a_job_that_cannot_wait_for_its_turn_is_told_how_long_to(max_wait: str, change: str) -> None:
    """The other one holds the only machine for four slots; with an hour less to wait there is no place."""
    jobs = [a_job("a", deadline=None, max_wait=max_wait), a_job("b", deadline="+4h", priority=1)]
    changes = checked(jobs, [ONE])
    assert change in changes
    less = a_request([a_job("a", deadline=None, max_wait="4h"), jobs[1]], [ONE])
    assert [u.job for u in make_plan(less).unplaced] == ["a"]


ZONES = tuple(f"north-1{letter}" for letter in "abcdefghijklmnopqrst")


def cheap_and_slow(market: str) -> list[Offer]:
    """Twenty offers that are cheaper than the one that is fast enough."""
    return [
        offer("aws/north-1", "g9.48xlarge", market, f"{1 + index / 100:.2f}", zone=zone)
        for index, zone in enumerate(ZONES)
    ]


def two_speeds(**fields: Any) -> Job:
    """A job that A100 do far too slowly, and H100 at three times their cost a step."""
    profile = [
        {"accelerator": "A100-80GB", "count": 8, "steps_per_hour": 10},
        {"accelerator": "H100", "count": 8, "steps_per_hour": 100},
    ]
    base = a_job(deadline="+5h", **fields).model_dump()
    base |= {"workload": {"profile": profile}, "gang": {"options": ["A100-80GB:8", "H100:8"]}}
    return Job.model_validate(base | fields)


def test_the_only_place_that_fits_is_found_behind_twenty_cheaper_ones() -> None:
    """Nineteen hours on the cheap ones, five to the deadline: more of the dear one's machines are what helps."""
    jobs = [two_speeds(), a_job("b", deadline="+5h", priority=1)]
    changes = checked(jobs, [*cheap_and_slow("on_demand"), ONE])
    assert "+1 machines of capacity aws/north-1/p9.48xlarge/on_demand" in changes


def test_a_budget_is_raised_to_the_twenty_first_offer() -> None:
    job = two_speeds()
    job = job.model_copy(update={"budget": Usd.parse("20")})
    (change, *_) = [c for c in checked([job], [*cheap_and_slow("on_demand"), NORTH]) if c.startswith("+$")]
    assert change.startswith("+$1")


def test_a_market_is_opened_to_the_twenty_first_offer() -> None:
    job = two_speeds()
    job = job.model_copy(update={"market": MarketRule(spot="only")})
    assert "allow on-demand" in checked([job], [*cheap_and_slow("on_demand"), NORTH])


def gang(name: str, machines: int, **fields: Any) -> Job:
    """So many machines of eight, at 100 steps an hour."""
    fields = {"checkpoint": {"size_gib": 10}, "startup_minutes": 12} | fields
    return simple_job(name, ("H100", 8 * machines), steps=300, steps_per_hour=100, **fields)


def a_machine_less(found: Relaxation) -> Relaxation:
    amount, rest = re.fullmatch(r"\+(\d+) (.+)", found.change).groups()  # type: ignore[union-attr]
    return replace(found, change=f"+{int(amount) - 1} {rest}")


@pytest.mark.parametrize("unit", ["machines", "accelerators", "vcpus"])
@pytest.mark.parametrize(("ours", "theirs", "have"), [(2, 2, 3), (4, 1, 4), (1, 3, 3), (3, 4, 5), (2, 3, 3)])
def test_a_limit_is_raised_by_what_is_missing_and_by_one_less_not_enough(
    ours: int, theirs: int, have: int, unit: str
) -> None:
    each = {"machines": 1, "accelerators": 8, "vcpus": 192}[unit]
    limits = {"limits": [{"name": "quota", "amount": have * each, "unit": unit}]}
    jobs = [gang("a", ours, deadline="+4h"), gang("b", theirs, deadline="+4h", priority=1)]
    request = a_request(jobs, [NORTH], limits, resolve_limits=0)
    plan = make_plan(request)
    (found,) = [r for r in plan.unplaced[0].relaxations if r.change.endswith("of quota")]
    assert found.change == f"+{(ours + theirs - have) * each} {unit} of quota"
    assert make_plan(relaxed(request, jobs[0].name, found)).unplaced == ()
    less = make_plan(relaxed(request, jobs[0].name, a_machine_less(found)))
    assert [u.job for u in less.unplaced] == ["a"]


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_the_least_raise_is_least_whatever_the_others_hold(seed: int, resumes: bool) -> None:
    """The others fill their windows, so that none can make room: with one machine less nobody more is placed."""
    rng = Random(seed)
    hours = [rng.choice((0, 2, 4)) for _ in range(2)]
    others = [
        gang(name, rng.choice((1, 2, 3)), earliest_start=f"+{at}h", deadline=f"+{at + 4}h", priority=5)
        for name, at in zip("bc", hours, strict=True)
    ]
    have = max(6, sum(job.gang.options[0].count // 8 for job in others))
    job = gang("a", rng.choice((4, 5, 6)), deadline="+7h", checkpoint={"size_gib": 10} if resumes else None)
    limits = {"limits": [{"name": "quota", "amount": have, "unit": "machines"}]}
    request = a_request([job, *others], [NORTH], limits, resolve_limits=0)
    plan = make_plan(request)
    if not plan.unplaced:
        return
    (found,) = [r for r in plan.unplaced[0].relaxations if r.change.endswith("of quota")]
    assert make_plan(relaxed(request, job.name, found)).unplaced == ()
    assert [u.job for u in make_plan(relaxed(request, job.name, a_machine_less(found))).unplaced] == ["a"]


@pytest.mark.parametrize(("amount", "unit", "change"), [(1, "machines", "+2 machines"), (0, "vcpus", "+576 vcpus")])
def test_a_gang_larger_than_a_limit_is_told_what_of_it_is_missing(amount: int, unit: str, change: str) -> None:
    """It has no candidate at all before the limit is raised."""
    limits = {"limits": [{"name": "quota", "amount": amount, "unit": unit}]}
    assert checked([gang("a", 3, deadline="+5h")], [NORTH], limits) == [f"{change} of quota"]


def test_a_gang_larger_than_a_limit_counts_what_others_hold() -> None:
    limits = {"limits": [{"name": "quota", "amount": 2, "unit": "machines"}]}
    jobs = [gang("a", 3, deadline="+4h"), gang("b", 1, deadline="+4h", priority=1)]
    assert checked(jobs, [NORTH], limits) == ["+2 machines of quota"]


def test_a_stated_placement_that_nothing_satisfies_can_be_given_up() -> None:
    job = a_job(data=DATA, deadline="2026-11-22T02:00:00Z").model_copy(update={"placement": "data"})
    request = a_request([job], [LAKE])
    plan = make_plan(request)
    reason = plan.unplaced[0].reason
    assert reason.startswith("no offer passes the job's rules: placement drops 1 (gcp/lake-1/a9-highgpu-8g/on_demand: ")
    assert kept(request, plan, "a") == ["placement none"]


def test_what_a_rule_costs_does_not_depend_on_spot_gangs_that_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search without a rule looks at no spot gang whose steps alone cost as much as the job with it."""
    nightly = ROOT / "examples" / "nightly"
    files = [str(nightly / f"{name}.yaml") for name in ("llama3-70b-sft-code", "qwen3-30b-math", "flux-product-shots")]
    request = plan_request(files, "embedded", None, NOW, PlanOptions()).request
    looked: list[tuple[int, int]] = []
    find = CandidateFinder.find

    def all_gangs(finder: CandidateFinder, job: Job, **bounds: Any) -> Any:
        found = find(finder, job, **{**bounds, "below": None})
        if bounds.get("below") is not None:
            near = find(finder, job, **bounds)[0]
            looked.append((len(near), len(found[0])))
            by_key = {c.key: c for c in found[0]}
            assert all(by_key[c.key] == c for c in near)
            left_out = by_key.keys() - {c.key for c in near}
            least = bounds["below"].dollars() * 0.999
            assert all(by_key[k].market is Market.SPOT for k in left_out)
            assert all(by_key[k].expected_usd(job.steps) >= least for k in left_out)
        return found

    plan = make_plan(request)
    monkeypatch.setattr(CandidateFinder, "find", all_gangs)
    assert make_plan(request) == plan
    assert len(looked) >= len(files)
    assert any(few < many for few, many in looked)
