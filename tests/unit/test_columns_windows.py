"""Windows: the jobs that hold or want a scarce limit around a slot with a price, the same ones in every run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from router.planning.columns import search
from router.planning.columns.column import Column, run_column
from router.planning.columns.master import Master, MasterSolution
from router.planning.columns.relaxation import free_prices
from router.planning.columns.runs import RunPricer
from router.planning.columns.table import Table, build_table
from router.planning.columns.whole import PlanTotals, WholePlan
from router.planning.columns.windows import WindowChooser
from router.planning.planner import make_plan
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, a_job, a_request, problem_of

LAKE = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30", cap=1)
JOBS = 6


@pytest.fixture(scope="module")
def table() -> Table:
    return build_table(problem_of(a_request([a_job(f"j{n}", steps=200) for n in range(JOBS)], [NORTH, LAKE])))


def night(table: Table) -> tuple[WholePlan, list[list[Column]], MasterSolution]:
    """Job 0 holds the lake in the first hours, job 5 could in the last ones; the others are elsewhere."""
    pricer, master = RunPricer(table), Master(table, np.ones(len(table.jobs)))
    lake = [row for row in range(len(table.rows)) if table.rows[row].candidate.offer.region == "lake-1"]
    north = [row for row in range(len(table.rows)) if table.rows[row].candidate.offer.region != "lake-1"]

    def of(rows: list[int], job: int) -> int:
        return next(row for row in rows if table.job[row] == job)

    columns: list[Column | None] = [run_column(table, pricer, of(north, job), 0) for job in range(JOBS)]
    columns[0] = run_column(table, pricer, of(lake, 0), 0)
    late = run_column(table, pricer, of(lake, 5), 18)
    near = [[column] for column in columns if column is not None]
    near[5].append(late)
    assert columns[0] is not None
    price = np.zeros_like(free_prices(table).limit)
    for place in (columns[0].use[0], late.use[0]):
        price.ravel()[place] = 2.0
    prices = replace(free_prices(table), limit=price)
    solution = MasterSolution(0.0, np.zeros(0), np.zeros(0), np.zeros(len(table.jobs)), prices)
    return PlanTotals(table, master.egress).plan(columns), near, solution


def test_who_neither_holds_nor_wants_the_limit_there_is_in_no_window(table: Table) -> None:
    plan, near, solution = night(table)
    windows = WindowChooser(table, solution, near)
    drawn = [tuple(windows.draw(plan, np.ones(JOBS), 4)) for _ in range(60)]
    assert set(drawn) <= {(0,), (5,), (0, 5)}
    assert {(0,), (5,)} <= set(drawn)


def test_two_runs_draw_the_same_windows(table: Table) -> None:
    plan, near, solution = night(table)
    first, second = (WindowChooser(table, solution, near) for _ in range(2))
    regret = np.arange(JOBS, dtype=np.float64)
    assert [first.draw(plan, regret, 4) for _ in range(20)] == [second.draw(plan, regret, 4) for _ in range(20)]


def test_a_window_is_no_larger_than_asked_and_mostly_of_holders(table: Table) -> None:
    plan, near, solution = night(table)
    held = WholePlan(tuple(plan.columns[0] for _ in range(JOBS)), plan.left_out, plan.usd)
    windows = WindowChooser(table, solution, [*near[:5], near[5][1:]])
    found = [windows.draw(held, np.ones(JOBS), 3) for _ in range(40)]
    assert max(map(len, found)) == 3
    assert all(job < JOBS for group in found for job in group)


def test_without_a_price_there_is_nothing_to_draw(table: Table) -> None:
    _, near, solution = night(table)
    assert not WindowChooser(table, replace(solution, prices=free_prices(table)), near)


def test_plans_of_windows_alone_are_sound_and_near_the_program_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths differ, so that in turn, by price alone, the short place fills badly."""
    monkeypatch.setattr(search, "_ALL", 0)
    drawn: list[int] = []
    draw = WindowChooser.draw

    def counted(self: WindowChooser, *arguments: Any) -> list[int]:
        drawn.append(1)
        return draw(self, *arguments)

    monkeypatch.setattr(WindowChooser, "draw", counted)
    jobs = [a_job(f"j{n}", steps=100 + 70 * n, deadline="+20h") for n in range(7)]
    request = a_request(jobs, [NORTH, LAKE], compact_jobs=0, gap=0.0001)
    plan, compact = make_plan(request), make_plan(replace(request, compact_jobs=30))
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
    assert plan.cost_usd.dollars() <= compact.cost_usd.dollars() * 1.01
    assert drawn
