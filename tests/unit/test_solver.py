"""Solvers by name: the same optimum, honest words about time and bounds."""

from __future__ import annotations

import math
from random import Random

import pulp
import pytest

from pricing.problems import InvalidInputError
from router.planning.program.solver import PulpSolver
from router.planning.rules.program import Program, ProgramBuilder

HAS_CBC = "PULP_CBC_CMD" in pulp.listSolvers(onlyAvailable=True)
NAMES = ["highs", "HiGHS", pytest.param("cbc", marks=pytest.mark.skipif(not HAS_CBC, reason="CBC is not installed"))]


def cover() -> Program:
    """Cheapest cover of 7 by pieces of 3 at $5 and of 2 at $3 (at most two of them): 3 + 2 + 2 at $11."""
    builder = ProgramBuilder()
    threes = builder.variable("threes", high=5, integer=True, cost=5)
    twos = builder.variable("twos", high=9, integer=True, cost=3)
    builder.row("enough", [(threes, 3.0), (twos, 2.0)], ">=", 7.0)
    builder.row("few", [(twos, 1.0)], "<=", 2.0)
    return builder.build()


def impossible() -> Program:
    builder = ProgramBuilder()
    x = builder.binary("x", cost=1)
    builder.row("more than all", [(x, 1.0)], ">=", 2.0)
    return builder.build()


def market_split() -> Program:
    """Splits every product of a market in halves: known to take far longer than any test."""
    rng = Random(5)
    builder = ProgramBuilder()
    shops = [builder.binary(f"shop {i}") for i in range(50)]
    for product in range(6):
        sales = [(x, float(rng.randrange(100))) for x in shops]
        over, under = (builder.variable(f"{word} {product}", cost=1) for word in ("over", "under"))
        half = float(sum(a for _, a in sales) // 2)
        builder.row(f"half {product}", [*sales, (over, -1.0), (under, 1.0)], "==", half)
    return builder.build()


@pytest.mark.parametrize("name", NAMES)
def test_each_solver_finds_the_optimum_and_a_bound_below_it(name: str) -> None:
    solver = PulpSolver(name)
    found = solver.solve(cover(), 0.0, 10)
    assert solver.name == name.lower()
    assert (found.outcome, found.hit_time_limit) == ("optimal", False)
    assert found.objective == pytest.approx(11)
    assert found.values == pytest.approx((1.0, 2.0))
    assert found.bound <= found.objective + 1e-9
    # Another solver than HiGHS is given the relaxation's bound: weaker, but proven.
    assert found.bound == pytest.approx(11 if name.lower() == "highs" else 6 + 5 * (7 - 4) / 3)


@pytest.mark.parametrize("name", NAMES)
def test_infeasible_is_said_without_values(name: str) -> None:
    found = PulpSolver(name).solve(impossible(), 0.0, 10)
    assert (found.outcome, found.values, found.objective) == ("infeasible", (), math.inf)
    assert not found.hit_time_limit


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_time_limit_is_reported_and_the_answer_is_not_called_optimal(name: str) -> None:
    found = PulpSolver(name).solve(market_split(), 0.0, 0.3)
    assert found.outcome in ("feasible", "unknown")
    assert found.hit_time_limit
    assert found.bound <= found.objective
    assert found.seconds < 10
    if found.outcome == "feasible":
        assert len(found.values) == 62
    else:
        assert found.values == ()


def test_a_solver_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInputError) as refused:
        PulpSolver("higs")
    (problem,) = refused.value.problems
    assert (problem.field, problem.what) == ("--solver", "PuLP knows no solver 'higs'")
    assert "highs" in problem.remedy


def test_a_solver_that_is_not_installed_is_refused() -> None:
    missing = sorted(set(pulp.listSolvers()) - set(pulp.listSolvers(onlyAvailable=True)) - {"HiGHS"})[0]
    with pytest.raises(InvalidInputError) as refused:
        PulpSolver(missing)
    assert "is not installed" in str(refused.value)


def test_the_relaxation_prices_rows_by_what_one_more_unit_saves() -> None:
    relaxed = PulpSolver().relax(cover(), 10)
    assert relaxed.outcome == "optimal"
    assert relaxed.objective == pytest.approx(11)
    # One more piece of 2 at $3 spares 2/3 of a piece of 3 at $5.
    more = PulpSolver().relax(_with_more(), 10)
    assert relaxed.duals == {"few": pytest.approx(11 - more.objective)}
    assert PulpSolver().relax(impossible(), 10).duals == {}


def _with_more() -> Program:
    builder = ProgramBuilder()
    threes = builder.variable("threes", high=5, cost=5)
    twos = builder.variable("twos", cost=3)
    builder.row("enough", [(threes, 3.0), (twos, 2.0)], ">=", 7.0)
    builder.row("few", [(twos, 1.0)], "<=", 3.0)
    return builder.build()


def test_the_same_program_gives_the_same_answer_twice() -> None:
    solver = PulpSolver()
    assert solver.solve(cover(), 0.0, 10).values == solver.solve(cover(), 0.0, 10).values


def test_a_gap_lets_the_search_stop_early_but_never_lies_about_the_bound() -> None:
    found = PulpSolver().solve(cover(), 0.5, 10)
    assert found.outcome == "optimal"
    assert found.bound <= 11 + 1e-9
    assert found.objective <= 11 / 0.5
