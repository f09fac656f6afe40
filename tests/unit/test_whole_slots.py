"""Bounds over schedules with whole slots: never above an unbroken run or an exact program, and near them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from router.planning.columns.column import share_done
from router.planning.columns.paths import bound_paths
from router.planning.columns.relaxation import free_prices
from router.planning.columns.runs import NEVER, RunPricer, Surcharges, row_floors
from router.planning.columns.single import solve_single
from router.planning.columns.table import Ints, Table, build_table
from router.planning.columns.whole_slots import WHOLE_SLOT_UNITS, bound_whole_slots
from router.planning.program.effort import Effort
from router.planning.program.solver import PulpSolver
from tests.bench.nights import mid_size_request
from tests.support.scenes import NORTH, SOUTH, a_job, a_request, problem_of

FEW, MANY = WHOLE_SLOT_UNITS


def charged(table: Table, seed: int, dollars: float) -> Surcharges:
    """Prices of limits drawn by slot, and of budgets."""
    draw = np.random.default_rng(seed)
    prices = free_prices(table)
    limit = draw.random(prices.limit.shape) * (draw.random(prices.limit.shape) < 0.5) * dollars
    limit[0] = 0.0
    return Surcharges.of(table, replace(prices, limit=limit, team=draw.random(prices.team.shape) * 0.2))


def resumable_groups(table: Table) -> Ints:
    """The groups of jobs that may pause, in one region."""
    job = table.block_job
    return np.flatnonzero(~table.whole[job] & ~table.several[job])


def best_runs(table: Table, charges: Surcharges) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The least cost of an unbroken run by group, without moves."""
    rows = np.arange(len(table.rows))
    cost, _ = RunPricer(table).best_of_rows(rows, charges, row_floors(table, charges))
    best = np.full(len(table.block_job), np.inf)
    np.minimum.at(best, table.block, cost)
    return best - charges.block_moves


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_is_never_above_an_unbroken_run(seed: int) -> None:
    table = build_table(problem_of(mid_size_request(seed)))
    groups = resumable_groups(table)
    for dollars in (0.0, 0.5, 20.0):
        charges = charged(table, seed, dollars)
        best = best_runs(table, charges)[groups]
        for units in WHOLE_SLOT_UNITS:
            found = bound_whole_slots(table, charges, groups, units).value
            assert (found <= best * (1 + 1e-9) + 1e-6).all()


def exact_and_bounds(seed: int) -> list[tuple[float, float, float, float]]:
    """For some groups of a night: the best schedule of the exact program, and bounds by few, many units and paths."""
    table = build_table(problem_of(mid_size_request(seed)))
    charges = charged(table, seed, 5.0)
    groups = np.random.default_rng(seed).permutation(resumable_groups(table))[:12]
    free = np.full(len(groups), NEVER)
    bounds = [bound_whole_slots(table, charges, groups, units).value for units in WHOLE_SLOT_UNITS]
    paths = bound_paths(table, charges, groups, upper=free).value
    effort = Effort(PulpSolver(), timedelta(seconds=100))
    found = []
    for i, group in enumerate(groups.tolist()):
        column = solve_single(table, charges, group, effort).column
        if column is not None:
            surcharge = sum(charges.slot[table.kind[row], slot] * share for slot, row, share in column.holds)
            usd = column.usd + charges.team[column.job] * (column.counted - table.dearest_moves[group]) + surcharge
            found.append((float(usd), float(bounds[0][i]), float(bounds[1][i]), float(paths[i])))
    return found


@pytest.mark.parametrize("seed", range(3, 6))
def test_a_bound_is_never_above_a_schedule_and_above_that_of_paths(seed: int) -> None:
    found = exact_and_bounds(seed)
    assert len(found) > 3
    for exact, few, many, _ in found:
        assert few <= exact * (1 + 1e-9) + 1e-6
        assert many <= exact * (1 + 1e-9) + 1e-6
    with_whole_slots = sum(max(many, path) for _, _, many, path in found)
    with_paths = sum(path for *_, path in found)
    assert with_whole_slots >= with_paths


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 30))
def test_a_bound_is_never_above_a_schedule_of_more_nights(seed: int) -> None:
    for exact, few, many, _ in exact_and_bounds(seed):
        assert max(few, many) <= exact * (1 + 1e-9) + 1e-6


def test_a_job_of_three_hours_and_a_bit_pays_for_four_slots() -> None:
    problem = problem_of(a_request([a_job("a", steps=310)], [NORTH, SOUTH], {"limits": [LIMIT]}))
    table = build_table(problem)
    charges = Surcharges.of(table, free_prices(table))
    dear = replace(charges, slot=np.where(table.amounts[:, :1] > 0, 7.0, charges.slot))
    groups = resumable_groups(table)
    found = bound_whole_slots(table, dear, groups, MANY)
    need = table.need[0] + table.startup[0]
    assert 3 < need < 4
    priced = np.flatnonzero(dear.slot[table.kind[table.block_first]].max(axis=1) > 0)
    usd = table.usd[table.block_first][priced]
    np.testing.assert_allclose(found.value[priced], usd + 4 * 7.0, rtol=2e-3)
    paths = bound_paths(table, dear, groups[priced], upper=np.full(len(priced), NEVER)).value
    np.testing.assert_allclose(paths, usd + need * 7.0, rtol=1e-6)
    for number in priced.tolist():
        path = found.paths[number]
        assert share_done(table, [(t, r, 1.0) for t, r in zip(path.slots, path.rows, strict=True)]) >= 1


LIMIT = {"name": "few", "cloud": "aws", "region": "north-1", "amount": 1, "unit": "machines"}
