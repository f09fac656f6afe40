"""Placing gangs jointly: who goes first, who goes where, what is looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pricing.money import Usd
from pricing.offers import Offer
from pricing.places import RegionId
from router.jobs.limits import Limits
from router.planning.find.candidates import CandidateFinder
from router.planning.find.shared_limits import LimitCounter
from router.planning.improve.replacement import MOST_CANDIDATES, PlacementRequest, Placements, place_gangs
from router.planning.problem.remaining_work import remaining_job
from router.planning.program.solver import LpRelaxation, PulpSolver, Solution
from router.planning.rules.program import Program
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import ALPS, LAKE, NORTH, NORTH_SPOT, NOW, SOUTH, a_job

HOME = RegionId("aws", "north-1")
ONE_GCP = {"limits": [{"name": "gcp", "cloud": "gcp", "amount": 8, "unit": "accelerators"}]}


def want(name: str, offers: list[Offer], limits: Limits, done: int = 0, **more: Any) -> PlacementRequest:
    own = {k: more.pop(k) for k in ("allowed", "late", "most_usd", "gang") if k in more}
    job = remaining_job(a_job(name, **more), done, HOME, NOW)
    found, _ = CandidateFinder(book(offers), limits, NOW, advisory=False).find(job)
    return PlacementRequest(job, found, **own)


def go(wants: list[PlacementRequest], limits: Limits, **more: Any) -> Placements:
    return place_gangs(wants, limits, solver=PulpSolver(), **more)


def regions(found: Placements) -> dict[str, str]:
    return {name: str(c.region) for name, c in found.placed.items()}


def test_nobody_to_place() -> None:
    found = go([], Limits.none())
    assert (found.placed, found.waiting, found.fewest_waiting, found.gap) == ({}, (), True, 0.0)


def test_without_limits_each_takes_its_cheapest() -> None:
    limits = Limits.none()
    found = go([want("a", [NORTH, ALPS, LAKE], limits), want("b", [NORTH, ALPS], limits)], limits)
    assert regions(found) == {"a": "gcp/lake-1", "b": "aws/alps-1"}
    assert found.gap < 1e-8
    assert found.fewest_waiting


def test_the_scarce_place_goes_to_whom_it_saves_most() -> None:
    limits = make_limits(ONE_GCP)
    wants = [want("short", [NORTH, LAKE], limits, done=200), want("long", [NORTH, LAKE], limits)]
    assert regions(go(wants, limits)) == {"short": "aws/north-1", "long": "gcp/lake-1"}


def test_a_higher_priority_outweighs_any_number_of_lower_ones() -> None:
    limits = make_limits({"limits": [{"name": "all", "amount": 16, "unit": "accelerators"}]})
    low = [want(f"low-{n}", [NORTH, ALPS], limits, priority=0) for n in range(2)]
    high = want("high", [NORTH, ALPS], limits, priority=1)
    found = go([*low, high], limits)
    assert "high" in found.placed
    assert len(found.waiting) == 1
    assert found.waiting[0].startswith("low")


def test_fewer_waiting_comes_before_cheaper() -> None:
    """Only ``narrow`` is bound to the scarce place; the other one pays more elsewhere."""
    limits = make_limits(ONE_GCP)
    wants = [want("wide", [NORTH, LAKE], limits), want("narrow", [LAKE], limits, done=290)]
    assert regions(go(wants, limits)) == {"wide": "aws/north-1", "narrow": "gcp/lake-1"}


def test_what_goes_on_running_is_not_given_away() -> None:
    limits = make_limits(ONE_GCP)
    running = want("running", [LAKE], limits).candidates[0]
    found = go([want("a", [LAKE], limits)], limits, held=[LimitCounter(limits).use(running, "")])
    assert found.waiting == ("a",)
    assert go([want("a", [LAKE, NORTH], limits)], limits, held=[LimitCounter(limits).use(running, "")] * 3).placed


def test_only_what_the_policy_allows() -> None:
    limits = Limits.none()
    all_of = want("a", [NORTH, ALPS], limits)
    north = frozenset(c.key for c in all_of.candidates if c.region == HOME)
    assert regions(go([want("a", [NORTH, ALPS], limits, allowed=north)], limits)) == {"a": "aws/north-1"}
    assert go([want("a", [NORTH], limits, allowed=frozenset())], limits).waiting == ("a",)


def test_who_is_late_takes_the_fastest() -> None:
    limits = Limits.none()
    profile = [
        {"accelerator": "H100", "count": 8, "steps_per_hour": 100, "relative_error": 0.0},
        {"accelerator": "A100-80GB", "count": 8, "steps_per_hour": 60, "relative_error": 0.0},
    ]
    slow = offer("gcp/lake-1", "a7-highgpu-8g", "on_demand", "5")
    more = {"workload": {"profile": profile}, "gang": {"options": ["H100:8", "A100-80GB:8"]}}
    job = remaining_job(a_job("a").model_validate({**a_job("a").model_dump(mode="json"), **more}), 0, HOME, NOW)
    found, _ = CandidateFinder(book([NORTH, slow]), limits, NOW, advisory=False).find(job)
    assert regions(go([PlacementRequest(job, found)], limits)) == {"a": "gcp/lake-1"}
    assert regions(go([PlacementRequest(job, found, late=True)], limits)) == {"a": "aws/north-1"}


def test_money_binds_jobs_and_teams() -> None:
    limits = Limits.none()
    cost = go([want("a", [ALPS], limits)], limits).expected_usd["a"]
    less = cost - Usd.parse("0.01")
    assert go([want("a", [ALPS], limits, most_usd=cost)], limits).placed
    assert not go([want("a", [ALPS], limits, most_usd=less)], limits).placed
    assert not go([want("a", [ALPS], limits)], limits, money_left={"red": less}).placed
    both = [want("a", [ALPS], limits), want("b", [ALPS], limits)]
    assert len(go(both, limits, money_left={"red": cost + less}).placed) == 1
    assert len(go(both, limits, money_left={"red": cost + cost + Usd.parse("0.01")}).placed) == 2
    assert len(go(both, limits, money_left={"blue": less}).placed) == 2


def test_gangs_of_one_job_have_names_of_their_own() -> None:
    limits = Limits.none()
    wants = [want("a", [ALPS], limits, gang=f"a/{n}") for n in (1, 2)]
    assert sorted(go(wants, limits).placed) == ["a/1", "a/2"]
    with pytest.raises(ValueError, match="one name"):
        go([want("a", [ALPS], limits)] * 2, limits)


def test_expected_dollars_are_those_of_the_rest_with_moves() -> None:
    limits = Limits.none()
    found = go([want("a", [SOUTH], limits, done=150, checkpoint={"size_gib": 1000})], limits)
    candidate = found.placed["a"]
    moved = sum(t.dearest.dollars() for t in candidate.transfers)
    assert moved > 1
    run = 50 * (0.2 + 150 * candidate.billed_share / candidate.steps_per_hour)
    assert found.expected_usd["a"].dollars() == pytest.approx(run + moved, rel=1e-6)
    assert found.objective_usd.dollars() == pytest.approx(run + moved, rel=1e-6)


def many_zones(count: int, price: str = "20") -> list[Offer]:
    return [offer("aws/north-1", "p9.48xlarge", "spot", price, zone=f"z{n:03}", cap=1) for n in range(count)]


def test_at_most_twenty_candidates_with_all_regions_and_markets_among_them() -> None:
    limits = Limits.none()
    offers = [*many_zones(60), NORTH, SOUTH, ALPS, LAKE]
    wants = [want(name, offers, limits) for name in ("a", "b")]
    found = go(wants, limits)
    assert found.looked_at <= 2 * MOST_CANDIDATES
    assert found.of > found.looked_at
    assert len({c.key for c in found.placed.values()}) == 2


def test_whoever_comes_late_finds_what_is_free_beyond_the_twenty() -> None:
    """Forty zones with room for one gang each: forty gangs all find one, though each looks at twenty."""
    limits = Limits.none()
    wants = [want(f"g{n:02}", many_zones(40), limits) for n in range(40)]
    found = go(wants, limits)
    assert not found.waiting
    assert len({c.key for c in found.placed.values()}) == 40


def test_what_another_beats_in_everything_is_not_looked_at() -> None:
    limits = Limits.none()
    found = go([want("a", [NORTH, SOUTH, ALPS, NORTH_SPOT], limits)], limits)
    assert (found.looked_at, found.of) == (1, 1)


def test_a_time_limit_that_is_over_leaves_the_quick_answer_and_says_so() -> None:
    limits = make_limits({"default_cap_machines": 2})
    wants = [want(f"g{n:02}", [NORTH, SOUTH, ALPS, LAKE], limits, done=7 * n) for n in range(20)]
    found = go(wants, limits, time_limit=timedelta(0))
    assert len(found.placed) == 8
    assert found.bound_usd <= found.objective_usd


class _LateWithTheFirst:
    """HiGHS, whose first search is cut by the clock; it has found the best by then, and has not proven it."""

    name = "late"

    def __init__(self) -> None:
        self._solver = PulpSolver()
        self.searches = 0

    def solve(self, *arguments: Any, **more: Any) -> Solution:
        self.searches += 1
        found = self._solver.solve(*arguments, **more)
        return replace(found, outcome="feasible", hit_time_limit=True) if self.searches == 1 else found

    def relax(self, program: Program, seconds: float) -> LpRelaxation:
        return self._solver.relax(program, seconds)


def test_a_count_of_who_waits_that_was_cut_short_is_said() -> None:
    limits = make_limits({"limits": [{"name": "one", "amount": 8, "unit": "accelerators"}]})
    solver = _LateWithTheFirst()
    found = place_gangs([want(n, [NORTH], limits) for n in "ab"], limits, solver=solver)
    assert (solver.searches, len(found.waiting)) == (2, 1)
    assert (found.fewest_waiting, found.hit_time_limit) == (False, True)
