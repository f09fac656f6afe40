"""What planning may take: counts of nodes first, the clock last, and every cut is named in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from router.planning.document.plan import Cut, Plan
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.planning.planner import make_plan
from router.planning.program.effort import Effort
from router.planning.program.solver import LpRelaxation, PulpSolver, Solution
from router.planning.rules.program import Program
from router.render.plan_text import table
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, RUNNING_IN_NORTH, SOUTH, a_job, a_request
from tests.unit.test_solver import cover, market_split

CHEAP = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30")
ONE_AT_THE_LAKE = {"limits": [{"name": "lake", "cloud": "gcp", "amount": 1, "unit": "machines"}]}


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """HiGHS on a machine where every search takes as long as the test says, in seconds of its clock: one that gets less
    comes back with what a time limit leaves, a plan without proof."""

    name = "slow"

    def __init__(self, clock: Clock, *takes: float) -> None:
        self._clock = clock
        self._takes = list(takes)
        self._solver = PulpSolver()
        self.given: list[float] = []
        self.nodes: list[int | None] = []

    def solve(
        self,
        program: Program,
        gap: float,
        seconds: float,
        start: Mapping[int, float] | None = None,
        nodes: int | None = None,
    ) -> Solution:
        takes = self._takes.pop(0) if len(self._takes) > 1 else self._takes[0]
        self.given.append(seconds)
        self.nodes.append(nodes)
        self._clock.now += min(takes, seconds)
        found = self._solver.solve(program, gap, 60, start, nodes)
        if takes <= seconds:
            return found
        return Solution("feasible", found.values, found.objective, 0.0, True, seconds)

    def relax(self, program: Program, seconds: float) -> LpRelaxation:
        return self._solver.relax(program, seconds)


def crowded(clock: Clock, solver: Slow, **knobs: Any) -> Plan:
    jobs = [a_job(name, deadline="+5h") for name in "abc"]
    request = a_request(jobs, [NORTH, CHEAP], ONE_AT_THE_LAKE, time_limit=timedelta(seconds=60), **knobs)
    return make_plan(request, solver=solver, clock=clock)


def test_a_plan_that_nothing_cut_says_so_and_keeps_its_resolved_prices() -> None:
    clock = Clock()
    plan = crowded(clock, Slow(clock, 0.1))
    assert (plan.time_limit_hit, plan.cuts) == (False, ())
    assert [p.basis for p in plan.shadow_prices] == ["resolved"]
    assert "cuts" not in plan_content(plan)


def test_shadow_prices_cut_by_the_clock_are_marked() -> None:
    """The search itself is done in time, so the plan is optimal; what it says of limits is an estimate."""
    clock = Clock()
    plan = crowded(clock, Slow(clock, 0.1, 0.1, 0.1, 90))
    assert (plan.status, plan.time_limit_hit) == ("optimal", True)
    assert plan.cuts == (Cut("shadow prices", "time"),)
    assert [p.basis for p in plan.shadow_prices] == ["lp_estimate"]
    text = " ".join(table(plan).split())
    assert "the time limit cut short: shadow prices" in text
    assert "a machine by an LP estimate, not solved again: lake" in text


def test_a_job_that_could_not_be_kept_in_place_in_time_is_marked() -> None:
    clock = Clock()
    job = a_job(status={"steps_done": 10, "running": RUNNING_IN_NORTH})
    request = a_request([job], [NORTH, SOUTH], time_limit=timedelta(seconds=60), gap=0.4, resolve_limits=0)
    plan = make_plan(request, solver=Slow(clock, 0.1, 90), clock=clock)
    assert plan.time_limit_hit
    assert Cut("staying", "time") in plan.cuts


def test_the_time_limit_covers_gathering_and_what_came_before() -> None:
    """Half an hour of reading before the planner began leaves no second for a search, and the plan is made without."""
    clock = Clock()
    solver = Slow(clock, 0.1)
    jobs = [a_job(name, deadline="+5h") for name in "abc"]
    request = a_request(jobs, [NORTH, CHEAP], ONE_AT_THE_LAKE, time_limit=timedelta(seconds=60))
    plan = make_plan(request, solver=solver, clock=clock, began=clock.now - 1800)
    assert solver.given == []
    assert (plan.unplaced, plan.time_limit_hit) == ((), True)
    assert [c.phase for c in plan.cuts if c.by == "time"] == [
        "early starts",
        "explanations",
        "placement",
        "repairs",
        "shadow prices",
    ]
    assert all(job.constraint_costs == () for job in plan.jobs)


def test_no_search_is_given_more_seconds_than_are_left() -> None:
    clock = Clock()
    solver = Slow(clock, 20)
    plan = crowded(clock, solver)
    assert plan.time_limit_hit
    assert len(solver.given) >= 3
    assert all(given <= left for given, left in zip(solver.given, (51, 31, 11, 11), strict=False))
    assert clock.now <= 1000 + 60


def test_a_search_ends_at_its_count_of_nodes_and_is_the_same_each_time() -> None:
    found = []
    for _ in range(2):
        effort = Effort(PulpSolver(), timedelta(minutes=30))
        effort.spend(30 * 60 * 30_000 - 100 * len(market_split().variables))  # what is left: the root and 60 nodes
        found.append(effort.solve("placement", market_split(), 0.0))
        assert effort.cuts == (Cut("placement", "work"),)
    assert found[0].values == found[1].values
    assert [(s.outcome, s.nodes, s.hit_time_limit) for s in found] == [("feasible", 60, False)] * 2


@pytest.mark.slow
def test_what_one_search_spends_the_next_one_lacks() -> None:
    clock = Clock()
    solver = Slow(clock, 0.0)
    effort = Effort(solver, timedelta(seconds=10), clock=clock)
    effort.solve("placement", market_split(), 0.0)
    part = effort.within(0.5)
    part.solve("placement", cover(), 0.0)
    effort.solve("placement", cover(), 0.0)
    first, second, third = solver.nodes
    assert first is not None
    assert first > 1000
    assert (second, third) == (1, 1), "the first has spent what the others would have had: the root is all they get"
    assert not effort.affords("shadow prices", cover())
    assert Cut("shadow prices", "work") in effort.cuts


def test_a_relaxation_that_is_late_is_none_and_is_marked() -> None:
    clock = Clock()
    effort = Effort(PulpSolver(), timedelta(seconds=10), clock=clock)
    assert effort.relax("shortlist", cover()).outcome == "optimal"
    clock.now += 10
    assert effort.relax("shortlist", cover()).outcome == "unknown"
    assert effort.cuts == (Cut("shortlist", "time"),)


@pytest.mark.parametrize("cuts", [(), (Cut("shortlist", "time"), Cut("wider search", "work"))])
def test_cuts_are_written_and_read_again(cuts: tuple[Cut, ...]) -> None:
    clock = Clock()
    plan = crowded(clock, Slow(clock, 0.1), resolve_limits=0)
    again = plan_from_json(plan_to_json(replace(plan, cuts=cuts)))
    assert again.cuts == cuts
    assert plan_to_json(again) == plan_to_json(replace(plan, cuts=cuts))
