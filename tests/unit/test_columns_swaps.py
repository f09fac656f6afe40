"""Swaps: a job that would take a cheaper column, and the jobs that hold what this column needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.planning.columns.column import Column, run_column
from router.planning.columns.master import Master, MasterSolution
from router.planning.columns.neighbourhoods import Improver
from router.planning.columns.relaxation import free_prices
from router.planning.columns.runs import RunPricer
from router.planning.columns.swaps import Swap, SwapChooser
from router.planning.columns.table import Table, build_table
from router.planning.columns.whole import PlanTotals, WholePlan
from router.planning.planner import make_plan
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, a_job, a_request, problem_of

LAKE = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "30", cap=1)
JOBS = 12
EVERYTHING = 1e6  # dollars


@pytest.fixture(scope="module")
def table() -> Table:
    return build_table(problem_of(a_request([a_job(f"j{n}", steps=200) for n in range(JOBS)], [NORTH, LAKE])))


class Night:
    """Job 0 holds the only machine of the lake from the first hour; each job could go there, now or later."""

    def __init__(self, table: Table, holders: tuple[int, ...] = (0,)) -> None:
        self.table, self.pricer = table, RunPricer(table)
        master = Master(table, np.full(JOBS, EVERYTHING))
        self.totals = PlanTotals(table, master.egress)
        lake = [self.row(job, "lake-1") for job in range(JOBS)]
        north = [self.row(job, "north-1") for job in range(JOBS)]
        columns = [run_column(table, self.pricer, row, start) for row in (*lake, *north) for start in (0, 12)]
        chosen: list[Column | None] = [run_column(table, self.pricer, north[job], 0) for job in range(JOBS)]
        for job in holders:
            chosen[job] = run_column(table, self.pricer, lake[job], 0)
        self.plan: WholePlan = self.totals.plan(chosen)
        alpha = np.array([min(c.usd for c in columns if c.job == job) for job in range(JOBS)])
        solution = MasterSolution(0.0, np.zeros(len(columns)), np.zeros(JOBS), alpha, free_prices(table))
        self.improver = Improver(self.totals, self.pricer, solution, columns, np.full(JOBS, EVERYTHING))

    def row(self, job: int, region: str) -> int:
        rows = self.table.rows
        return next(n for n, row in enumerate(rows) if row.job == job and row.candidate.offer.region == region)

    def swaps(self) -> list[Swap]:
        return SwapChooser(self.improver, EVERYTHING).find(self.plan)


def test_the_holder_of_what_a_job_wants_is_chosen_anew_with_it(table: Table) -> None:
    found = Night(table).swaps()
    now = [swap for swap in found if swap.column.holds[0][0] == 0]
    later = [swap for swap in found if swap.column.holds[0][0] == 12]
    assert {swap.jobs for swap in now} == {(0, job) for job in range(1, JOBS)}
    assert {swap.jobs for swap in later} == {(job,) for job in range(1, JOBS)}
    assert 0 not in {swap.column.job for swap in found}, "job 0 has its cheapest column"


def test_a_swap_saves_at_most_the_regret_of_its_jobs(table: Table) -> None:
    night = Night(table)
    regret = night.improver.regret(night.plan)
    for swap in night.swaps():
        assert swap.most_saved == pytest.approx(regret[list(swap.jobs)].sum())


def test_the_job_in_the_way_counts_with_its_cheapest_column_beside(table: Table) -> None:
    """Later the lake has room, so that the holder loses nothing there."""
    night = Night(table)
    gain = {swap.column.job: -swap.added for swap in night.swaps() if swap.column.holds[0][0] == 0}
    for job, usd in gain.items():
        lake, north = (run_column(table, night.pricer, night.row(job, r), 0).usd for r in ("lake-1", "north-1"))
        assert usd == pytest.approx(north - lake)


def test_more_jobs_in_the_way_than_a_swap_may_have_are_left_alone(table: Table) -> None:
    few, many = (Night(table, holders=tuple(range(count))) for count in (7, 8))  # more than there is room for
    assert (*range(7), 9) in {swap.jobs for swap in few.swaps()}
    assert (*range(8), 9) not in {swap.jobs for swap in many.swaps()}


def test_jobs_without_a_cheaper_column_have_no_swap(table: Table) -> None:
    night = Night(table)
    dear = replace(night.plan, columns=tuple(night.plan.columns[0] for _ in range(JOBS)))
    assert {swap.column.job for swap in SwapChooser(night.improver, -1.0).find(dear)} == set()


@pytest.mark.slow
def test_swaps_alone_make_sound_plans_near_the_program_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the exact choice of all columns, what is left of a plan in turn is up to swaps."""
    monkeypatch.setattr(Improver, "improved", lambda self, plan, *_: plan)
    jobs = [a_job(f"j{n}", steps=100 + 70 * n, deadline="+20h") for n in range(7)]
    request = a_request(jobs, [NORTH, LAKE], compact_jobs=0, gap=0.0001)
    plan, compact = make_plan(request), make_plan(replace(request, compact_jobs=30))
    assert check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot) == []
    assert plan.cost_usd.dollars() <= compact.cost_usd.dollars() * 1.01
