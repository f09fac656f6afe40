"""Plans by columns: running jobs, shares, early starts, jobs left out, time that is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import highspy
import numpy as np
import pytest

from router.planning.columns.column import run_column
from router.planning.columns.lp import OpenLp, SparseVector
from router.planning.columns.master import Master, egress_rows, least_egress_cost
from router.planning.columns.relaxation import free_prices
from router.planning.columns.runs import RunPricer
from router.planning.columns.table import build_table
from router.planning.document.plan import Plan
from router.planning.planner import make_plan
from router.planning.program.solver import SolverFailedError
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, RUNNING_IN_NORTH, SOUTH, a_job, a_request, places, problem_of

HOUR = timedelta(hours=1)


def by_columns(jobs: list[Any], offers: list[Any], limits: Any = None, **knobs: Any) -> Plan:
    """The plan by columns, which the independent checker accepts."""
    request = a_request(jobs, offers, limits, compact_jobs=0, **knobs)
    plan = make_plan(request)
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
    return plan


def in_one_program(jobs: list[Any], offers: list[Any], limits: Any = None, **knobs: Any) -> Plan:
    """The plan of the compact program."""
    return make_plan(a_request(jobs, offers, limits, **knobs))


def test_the_cheaper_place_is_taken_by_as_many_as_fit() -> None:
    jobs = [a_job(name, steps=200) for name in ("a", "b", "c")]
    one = offer("aws/south-1", "p9.48xlarge", "on_demand", "50", cap=1)
    columns, compact = (plan(jobs, [NORTH, one]) for plan in (by_columns, in_one_program))
    assert sorted(places(columns).values()) == sorted(places(compact).values())
    assert columns.cost_usd == compact.cost_usd
    assert columns.status == "optimal"
    assert columns.bound_usd <= columns.cost_usd


def test_runs_start_as_early_as_they_can() -> None:
    plan = by_columns([a_job("a", steps=100)], [NORTH], gap=0.1)
    assert [line.start for line in plan.lines] == [plan.as_of]


def test_a_budget_that_is_too_small_leaves_out_the_fewest_and_the_bound_is_of_as_many() -> None:
    jobs = [a_job(name, steps=200) for name in ("a", "b", "c")]
    limits = {"teams": [{"team": jobs[0].team, "budget": "$300"}]}
    columns, compact = (plan(jobs, [NORTH], limits) for plan in (by_columns, in_one_program))
    assert len(columns.unplaced) == len(compact.unplaced) == 1
    assert columns.stage_one_proven
    assert columns.cost_usd == compact.cost_usd
    assert 0 < columns.bound_usd.nanos <= columns.cost_usd.nanos


def test_a_job_that_runs_stays_where_moving_saves_too_little() -> None:
    status = {"steps_done": 100, "running": RUNNING_IN_NORTH}
    dear = offer("aws/north-1", "p9.48xlarge", "on_demand", "50.10")
    plan = by_columns([a_job("a", steps=1000, status=status)], [dear, SOUTH], gap=0.02)
    assert places(plan) == {"a": "aws/north-1 on_demand"}
    assert not any(line.startup for line in plan.lines)


def test_time_that_is_over_still_gives_a_plan_and_says_so() -> None:
    request = a_request([a_job("a"), a_job("b")], [NORTH, SOUTH], compact_jobs=0, time_limit=timedelta(0))
    plan = make_plan(request)
    assert check_plan(plan, request.jobs, request.book, request.limits) == []
    assert plan.time_limit_hit
    assert plan.cuts


def test_no_job_is_a_plan_too() -> None:
    plan = by_columns([], [NORTH])
    assert plan.lines == ()
    assert plan.cost_usd.nanos == 0


def test_the_same_jobs_in_another_order_give_the_same_plan() -> None:
    jobs = [a_job(name, steps=100 + 40 * number) for number, name in enumerate("abcdef")]
    one = offer("aws/south-1", "p9.48xlarge", "on_demand", "50", cap=2)
    assert by_columns(jobs, [NORTH, one]) == by_columns(jobs[::-1], [NORTH, one])


def test_the_fewest_jobs_left_out_are_counted_without_the_cost_of_moves() -> None:
    far = {"uri": "s3://made-up", "at": "gcp/lake-1", "gib": 100.0}
    table = build_table(problem_of(a_request([a_job("a", data=far)], [NORTH, SOUTH], compact_jobs=0)))
    prices = replace(free_prices(table), move=np.full((len(table.tariffs), len(table.months)), 0.03))
    most = float(table.move_gb.max(axis=0).sum()) * len(table.months)
    egress = egress_rows(table)
    # At three cents a gigabyte nothing is moved where moves cost more; where they are free, everything is.
    assert least_egress_cost(table, egress, prices) > -0.03 * most
    assert least_egress_cost(table.without_costs(), egress, prices) == pytest.approx(-0.03 * most)


def test_columns_found_while_columns_are_free_cost_nothing_until_they_are_not() -> None:
    table = build_table(problem_of(a_request([a_job("a")], [NORTH], compact_jobs=0)))
    master = Master(table, np.array([1e6]))
    master.set_column_costs(free=True)
    master.add([run_column(table, RunPricer(table), 0, 0)])
    first = master.solve()
    master.set_column_costs(free=False)
    second = master.solve()
    assert first is not None
    assert second is not None
    assert first.objective == pytest.approx(0.0)
    assert second.objective == pytest.approx(table.usd[0])


class StuckHighs:
    """HiGHS that ends without an answer until its basis is cleared, as it does where duals are off by a little."""

    def __init__(self, highs: Any) -> None:
        self._highs, self.stuck = highs, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._highs, name)

    def getModelStatus(self) -> Any:  # noqa: N802  HiGHS's name
        return highspy.HighsModelStatus.kUnknown if self.stuck else self._highs.getModelStatus()

    def clearSolver(self) -> Any:  # noqa: N802  HiGHS's name
        self.stuck = False
        return self._highs.clearSolver()


def test_a_program_that_ends_without_an_answer_is_solved_once_more_from_the_start() -> None:
    lp = OpenLp()
    lp.add_columns([SparseVector(np.zeros(0, dtype=np.int64), np.zeros(0))], np.array([2.0]), np.array([np.inf]))
    lp.add_rows([SparseVector(np.array([0]), np.array([1.0]))], np.array([3.0]), np.array([np.inf]))
    lp._highs = StuckHighs(lp._highs)
    solution = lp.solve()
    assert solution is not None
    assert solution.objective == pytest.approx(6)


def test_a_dive_whose_program_the_solver_fails_at_still_ends_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, fails = Master.solve, [2]

    def failing(master: Master) -> object:
        fixed = any(low > 0 for low in master._lp._highs.getLp().col_lower_)
        if fixed and fails[0]:
            fails[0] -= 1
            raise SolverFailedError("stuck")
        return solve(master)

    jobs = [a_job(name, steps=200, deadline="+10h") for name in ("a", "b", "c", "d")]
    one = offer("aws/south-1", "p9.48xlarge", "on_demand", "50", cap=1)
    limits = {"teams": [{"team": jobs[0].team, "budget": "$470"}]}
    sound = by_columns(jobs, [NORTH, one], limits)
    monkeypatch.setattr(Master, "solve", failing)
    plan = by_columns(jobs, [NORTH, one], limits)
    assert fails == [0]
    assert (plan.status, plan.bound_usd) == (sound.status, sound.bound_usd)
    assert (len(plan.unplaced), plan.cost_usd) == (len(sound.unplaced), sound.cost_usd)
