"""Worths of limits of plans by columns, against relaxations solved from nothing and against plans with more of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest

from pricing.places import Market
from router.planning.columns.column import Column, counted_again
from router.planning.columns.master import Master
from router.planning.columns.relaxation import Relaxer
from router.planning.columns.runs import RunPricer
from router.planning.columns.search import solve_by_columns
from router.planning.columns.table import build_table
from router.planning.columns.worth import EndedRelaxation
from router.planning.document.plan import ShadowPrice
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.explain.shadow_prices import shadow_prices
from router.planning.planner import PlanRequest, make_plan
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.program.effort import Effort
from router.planning.program.solve import PlacementSolution
from router.planning.program.solver import PulpSolver
from router.prices.books import load_book
from tests.bench.hundred_jobs import crowded_request
from tests.bench.nights import realistic_night
from tests.support.changed_requests import raised
from tests.support.scenes import problem_of

CENT = 0.01
CALM = 0.0007  # interruptions a machine-hour
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
LIMIT = timedelta(minutes=10)
ROUNDS, SHARES = 200, 4_000
LP = 2e-3  # of the cost: what two ways to the optimum of a relaxation may differ by; 1.04e-3 was seen


@dataclass(frozen=True)
class Night:
    """A night placed by columns, and the worths of its limits."""

    request: PlanRequest
    problem: PlacementProblem
    answer: PlacementSolution
    prices: tuple[ShadowPrice, ...]

    @property
    def relaxation(self) -> EndedRelaxation:
        assert isinstance(self.answer.relaxation, EndedRelaxation)
        return self.answer.relaxation


def effort() -> Effort:
    return Effort(PulpSolver("highs"), LIMIT)


def solved(request: PlanRequest) -> Night:
    request = replace(request, compact_jobs=0, resolve_limits=0)
    problem = problem_of(request)
    answer = solve_by_columns(problem, effort(), request.gap, lambda _: None)
    return Night(request, problem, answer, shadow_prices(answer, problem, effort(), 5))


@cache
def crowded(seed: int) -> Night:
    request = crowded_request(seed, 5, 10, gap=0.05)
    # The subject is limits: spot that is hardly ever interrupted keeps next to nothing free for a fallback.
    calm = (replace(o, interruptions_per_hour=CALM) if o.market is Market.SPOT else o for o in request.book.offers)
    return solved(replace(request, book=request.book.with_offers(calm)))


def realistic(jobs: int, seed: int, **knobs: Any) -> Night:
    made = realistic_night(jobs, seed, NOW)
    return solved(PlanRequest(made.jobs, load_book("embedded"), made.limits, NOW, **{"gap": 0.12, **knobs}))


def worth(price: ShadowPrice) -> float:
    assert price.saves_usd is not None
    return price.saves_usd.dollars()


def planned_columns(night: Night) -> list[Column]:
    """The columns of the plan: the last ones, but for those that the search had before."""
    table, slots = night.relaxation.table, {slot.index: slot for slot in night.problem.slots}

    def holds(column: Column) -> tuple[SlotHold, ...]:
        return tuple(SlotHold(slots[slot], table.rows[row].candidate.key, share) for slot, row, share in column.holds)

    holdings, columns = night.answer.holdings, night.relaxation.columns
    had = [c for c in columns[: -len(holdings)] if holds(c) == holdings.get(table.jobs[c.job].name)]
    return [*had, *columns[-len(holdings) :]]


def from_nothing(night: Night, price: ShadowPrice | None) -> float:
    """The relaxation's cost, all its columns found again, but for those of the plan, without which it may have none."""
    ended, problem = night.relaxation, night.relaxation.table.problem
    if price is not None:
        limit = problem.shared[price.limit]
        more = replace(limit, amount=limit.amount + price.raised_by)
        problem = replace(problem, shared={**problem.shared, price.limit: more})
    table = build_table(problem)
    master = Master(table, ended.left_out_usd)
    relaxer = Relaxer(table, master, RunPricer(table), effort())
    relaxer.start()
    master.add([counted_again(table, column) for column in planned_columns(night)])
    master.set_left_out(ended.left_out_usd, ended.most_left_out)
    _, bound = relaxer.over_runs(0.0, ROUNDS)
    solution, _, is_ended = relaxer.exhausted(ROUNDS, bound.prices, SHARES)
    assert is_ended
    return solution.objective


def confirm_by_planning_again(night: Night, price: ShadowPrice) -> None:
    """A plan with the limit raised, and as many jobs left out, may cost this much less, or more within its gap."""
    after = make_plan(replace(raised(night.request, price), resolve_limits=0, explained=False))
    assert worth(price) > 0
    if len(after.unplaced) == len(night.request.jobs) - len(night.answer.runs):
        assert worth(price) <= (night.answer.spent - after.bound_usd).dollars() + CENT, price


@pytest.mark.slow
@pytest.mark.parametrize("seed", [34, 15, 28])
def test_worths_are_those_of_relaxations_from_nothing(seed: int) -> None:
    night = crowded(seed)
    found = [price for price in night.prices if price.basis == "lp_resolved"]
    assert found
    before = from_nothing(night, None)
    for price in found:
        assert before - from_nothing(night, price) == pytest.approx(worth(price), abs=CENT)
        confirm_by_planning_again(night, price)


def test_worth_is_at_most_the_estimate_for_the_gang() -> None:
    """The dual is what the first unit saves, and each further one saves no more."""
    night = crowded(34)
    estimates = {price.limit: price for price in shadow_prices(night.answer, night.problem, effort(), 0)}
    for price in night.prices:
        assert worth(price) <= estimates[price.limit].usd_per_unit.dollars() * price.raised_by + CENT


def test_rounds_that_end_too_early_prove_at_least_a_part() -> None:
    night = crowded(28)
    planned = night.relaxation.columns[-len(night.answer.runs) :]
    few = [replace(night.relaxation, columns=planned, rounds=rounds) for rounds in (0, 5)]
    found = [shadow_prices(replace(night.answer, relaxation=r), night.problem, effort(), 5)[0] for r in few]
    assert [price.basis for price in found] == ["lp_estimate", "lp_at_least"]
    assert 0 < worth(found[1]) < worth(night.prices[0])


def test_time_that_is_over_leaves_the_estimates_and_says_so() -> None:
    night = crowded(34)
    late = Effort(PulpSolver("highs"), timedelta(0))
    prices = shadow_prices(night.answer, night.problem, late, 5)
    assert {price.basis for price in prices} == {"lp_estimate"}
    assert [(cut.phase, cut.by) for cut in late.cuts] == [("shadow prices", "time")]


def test_equal_requests_have_equal_worths() -> None:
    request = replace(crowded(28).request, resolve_limits=5)
    plan, again = make_plan(request), make_plan(replace(request, jobs=request.jobs[::-1]))
    assert plan_to_json(plan) == plan_to_json(again)
    assert [price.basis for price in plan.shadow_prices] == ["lp_resolved"]
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "seed"), [(40, 1), (48, 1), (60, 5)])
def test_worths_of_larger_nights_are_those_of_relaxations_from_nothing(jobs: int, seed: int) -> None:
    """Pricing finds most columns, not all: two ways to the optimum end a little apart."""
    night = realistic(jobs, seed)
    found = [price for price in night.prices if price.basis == "lp_resolved"]
    assert found
    before = from_nothing(night, None)
    for price in found:
        assert before - from_nothing(night, price) == pytest.approx(worth(price), abs=LP * before), price
        confirm_by_planning_again(night, price)
