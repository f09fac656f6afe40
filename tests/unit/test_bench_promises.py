"""The back-test of promises, on made-up recordings of which the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.spot.simulator.traces import Ints
from tests.bench.example_shapes import example_night, find_shape
from tests.bench.interruption_rules import UNKNOWN, Recording
from tests.bench.pool_promises import JobShape, PoolPromises, Promise, availability, observe_first_half
from tests.bench.promises import (
    PlayedCell,
    PlayedRuns,
    kept,
    list_returns,
    measure_ratio,
    pinball,
    pinball_gap,
    plan_cost,
    plan_kept,
    plan_over_alone,
    plan_over_spot,
    play_cell,
    report,
    report_by_job,
    spread_starts,
    up_to_held,
)

TICK_H = 1 / 6
SHAPE = JobShape(8.0, 1.5, 4.0)
STARTUP_H = 1 / 6  # a job's own default


def recording(name: str, counts: Ints) -> Recording:
    return Recording(name, "made", ("aws", name, "V100", "one"), TICK_H, 1, counts)


def swinging(name: str, seed: int) -> Recording:
    """Half a day with machines and two hours without, about."""
    rng = np.random.default_rng(seed)
    states = [state for _ in range(12) for state in [1] * int(rng.integers(40, 120)) + [0] * 12]
    return recording(name, np.array(states[:600], dtype=np.int64))


ALWAYS, NEVER = recording("always", np.ones(600, np.int64)), recording("never", np.zeros(600, np.int64))
OTHERS = [swinging(f"other-{seed}", seed) for seed in range(3)]


@pytest.fixture(scope="module")
def promise() -> Promise:
    """The promise on a pool that was left out: the same whatever happens in it."""
    found = PoolPromises(OTHERS).promise(ALWAYS, SHAPE)
    assert found is not None
    return found


def played(promise: Promise, pool: Recording, *, known: bool = False) -> PlayedCell:
    cell = play_cell(promise, pool, SHAPE, 12, known=known)
    assert cell is not None
    return cell


def test_a_pool_that_is_always_up_keeps_all_and_costs_the_spot_price(promise: Promise) -> None:
    cell = played(replace(promise, refusal=1.0), ALWAYS)
    assert not cell.runs.late.any()
    assert not cell.runs.fell_back.any()
    assert kept(cell.runs, cell.refused).all()
    speed = promise.like.speed[np.isinf(promise.like.on_demand_usd)][0]
    hours = promise.like.task.work_s / 3600 / speed + STARTUP_H
    assert cell.runs.usd == pytest.approx(np.full(12, hours * 1.0), rel=1e-3)
    assert cell.runs.finish_h == pytest.approx(np.full(12, hours + promise.lost_usd), rel=1e-3)
    assert cell.runs.usd.mean() < promise.plan_usd < promise.demand_usd
    assert up_to_held(cell)[0].all()


def test_a_pool_that_is_never_up_costs_the_on_demand_price_and_is_late_where_that_is_refused(promise: Promise) -> None:
    cell = played(promise, NEVER)
    assert cell.runs.usd == pytest.approx(np.full(12, promise.demand_usd), rel=1e-3)
    assert cell.runs.fell_back.all()
    assert not cell.runs.late.any()
    assert (kept(cell.runs, cell.refused) == ~cell.refused).all()
    assert not kept(cell.runs, np.ones(12, dtype=np.bool_)).any()
    assert 0 < promise.refusal < 0.1


def test_what_was_seen_of_a_pool_changes_what_is_promised_of_it(promise: Promise) -> None:
    calm = PoolPromises([*OTHERS, ALWAYS]).promise(ALWAYS, SHAPE)
    assert calm is not None
    assert calm.plan_usd < promise.plan_usd
    assert calm.quote_usd.mean() < promise.quote_usd.mean()
    cell = played(calm, ALWAYS, known=True)
    assert cell.own_up_to == pytest.approx(cell.runs.usd.max(), rel=1e-9)
    assert played(promise, ALWAYS).own_up_to is None


def test_a_pool_that_is_not_worth_its_waste_is_promised_on_demand() -> None:
    dear = PoolPromises(OTHERS).promise(ALWAYS, JobShape(8.0, 1.5, 1.001))
    assert dear is not None
    assert not dear.on_spot
    assert dear.plan_usd == dear.demand_usd


def test_example_jobs_are_moved_as_their_plans_find_them() -> None:
    night = example_night()
    jobs, finder = {job.name: job for job in night.jobs}, night.finder()
    refused = {name: find_shape(finder, jobs[name]) for name in ("tts-voices", "unet3d-crossvalidation")}
    assert refused == {"tts-voices": "no deadline", "unet3d-crossvalidation": "no spot gang under the guard"}
    assert find_shape(finder, jobs["embed-catalogue"]) == "no fallback on demand"
    shape = find_shape(finder, jobs["flux-product-shots"])
    assert isinstance(shape, JobShape)
    assert shape.name == "flux-product-shots"
    assert shape.work_h * shape.slack == pytest.approx(8.0)
    assert 1 < shape.work_h < 8
    assert shape.price_ratio > 1
    found = PoolPromises(OTHERS).promise(ALWAYS, shape)
    assert found is not None
    assert found.like.task.deadline_s == pytest.approx(8 * 3600, abs=TICK_H * 3600)
    assert found.calm_usd == pytest.approx(shape.work_h + 1 / 6, rel=0.02)  # the spot machine costs $1 an hour


def test_a_shape_has_the_checkpoint_start_and_confidence_of_its_job(promise: Promise) -> None:
    job = next(job for job in example_night().jobs if job.name == "flux-product-shots")
    assert job.checkpoint is not None
    large = job.checkpoint.model_copy(update={"size_gib": 1200 * job.checkpoint.write_gib_per_s})
    pools = PoolPromises(OTHERS)

    def promised(confidence: float) -> Promise:
        changed = {"startup": job.startup * 3, "checkpoint": large, "confidence": confidence}
        found = pools.promise(ALWAYS, replace(SHAPE, slack=4.0, like=job.model_copy(update=changed)))
        assert found is not None
        return found

    bold, careful = promised(0.5), promised(0.99)
    assert bold.calm_usd == pytest.approx(SHAPE.work_h + 3 * STARTUP_H)
    assert bold.lost_usd > 20 / 60 > promise.lost_usd
    assert (bold.alone, careful.alone) == (True, False)


def test_runs_lie_in_the_second_half_and_know_what_was_up() -> None:
    starts = spread_starts(300, 600, 72, 5)
    assert starts.tolist() == [300, 357, 414, 471, 528]
    assert spread_starts(300, 600, 300, 5).tolist() == [300]
    assert not spread_starts(300, 600, 301, 5).size
    fine = Recording(
        "fine", "made", ("aws", "fine", "V100", "one"), TICK_H / 2, 2, np.array([2, 2, 2, 1, UNKNOWN, 2, 0])
    )
    assert availability(fine).tolist() == [True, False, False]
    swings = recording("swings", np.array([1, 0, 1, 1, 0, 0, 1, 0, 1]))
    assert list_returns(swings, 2, 8, 5).tolist() == [2, 6]
    assert list_returns(swings, 0, 9, 2).tolist() == [2, 8]
    assert not list_returns(ALWAYS, 0, 600, 5).size
    half = observe_first_half(OTHERS[0])
    assert half is not None
    assert half.watched_h == pytest.approx(OTHERS[0].half * TICK_H)


def cell_of(promise: Promise, name: str, usd: list[float], block: list[int], **changes: object) -> PlayedCell:
    none = np.zeros(len(usd), dtype=np.bool_)
    runs = PlayedRuns(np.array(usd), none, none, np.array(usd))
    cell = PlayedCell(name, SHAPE, promise, runs, np.array(block), none, none, None, runs, np.array(block))
    return replace(cell, **changes)  # type: ignore[arg-type]


def test_figures_are_ratios_over_all_runs_drawn_by_recording_and_block(promise: Promise) -> None:
    stated = replace(promise, plan_usd=10.0, demand_usd=20.0, plan_on_time=0.96, quote_usd=np.arange(1.0, 11.0))
    cells = [cell_of(stated, "a", [8.0, 9.0], [0, 1]), cell_of(stated, "b", [10.0, 13.0], [0, 0])]
    held = measure_ratio(cells, up_to_held, 200)
    cost = measure_ratio(cells, plan_cost, 200)
    assert held is not None
    assert cost is not None
    assert (held.value, held.low, held.high, held.runs) == (0.5, 0.0, 1.0, 4)
    assert cost.value == pytest.approx(1.0)
    assert cost.low == pytest.approx(10 / 11.5)
    assert cost.high == pytest.approx(10 / 8.25)  # recording a twice, and its cheaper block three times of four
    without_runs = cell_of(stated, "c", [], [])
    assert measure_ratio([*cells, without_runs], plan_cost, 200) == cost
    unsure = [replace(cell, promise=replace(stated, plan_on_time=0.9)) for cell in cells]
    assert measure_ratio(unsure, plan_kept, 10) is None
    assert pinball(np.array([8.0, 12.0]), 10.0) == pytest.approx([0.2, 1.8])
    gap = pinball_gap(replace(cells[1], own_up_to=13.0))
    assert gap is not None
    assert gap[0] == pytest.approx(np.array([0.9 * 1 - 0.1 * 3, 0.9 * 4]) / 20)


def test_what_is_asked_is_judged(promise: Promise) -> None:
    stated = replace(promise, plan_usd=8.2, plan_on_time=0.96, quote_on_time=0.96, quote_usd=np.full(10, 9.0))
    cell = cell_of(stated, "a", [8.0] * 9 + [10.0], [0] * 10)
    lines = dict(report([cell], 10, known=True))
    assert not [words for words, figure in lines.items() if figure is not None and figure.missed]
    dear = cell_of(stated, "a", [8.0] * 5 + [10.0] * 5, [0] * 10)
    late = replace(dear, runs=replace(dear.runs, late=np.arange(10) < 2))
    missed = [words for words, figure in report([late], 10, known=True) if figure is not None and figure.missed]
    assert missed == [
        "plan: deadlines kept of those promised at 95%",
        "quote: deadlines kept of those promised at 95%",
        "late while the guard could pay",
        "quote: within '9 of 10 up to'",
        "quote: the same, ties in part",
    ]


def test_runs_are_told_apart_by_what_the_pool_has_at_their_start(promise: Promise) -> None:
    pool = swinging("pool", 9)
    cell = played(promise, pool)
    starts = spread_starts(pool.half, 600, promise.like.ticks, 12)
    assert cell.up.tolist() == availability(pool)[starts].tolist()
    assert set(cell.up.tolist()) == {True, False}
    usd = promise.plan_usd / np.array([cell.runs.usd[cell.up].mean(), cell.runs.usd[~cell.up].mean()])
    lines = dict(report([replace(cell, promise=replace(promise, on_spot=True))], 10, known=False))
    found = [
        lines[f"plan: the same of runs that begin while the pool {words}"] for words in ("has machines", "has none")
    ]
    assert [figure.value for figure in found if figure is not None] == pytest.approx(usd.tolist())


def test_plans_dearer_than_spot_under_the_guard_miss_what_is_asked(promise: Promise) -> None:
    usual = replace(promise, plan_usd=5.0, demand_usd=10.0)
    dear = cell_of(replace(usual, on_spot=False), "a", [9.8] * 5, [0] * 5)
    asked = "plan: played cost over all on spot under the guard"
    figure = dict(report([dear], 10, known=True))[asked]
    assert figure is not None
    assert figure.missed
    figure = dict(report([replace(dear, promise=usual)], 10, known=True))[asked]
    assert figure is not None
    assert not figure.missed
    _, line = report_by_job([dear], 10)
    assert line.split()[-3:] == ["(1.00", "to", "1.00)"]
    assert "1.02 (1.02 to 1.02)" in line


def test_plans_are_compared_with_spot_and_with_on_demand(promise: Promise) -> None:
    on_spot = cell_of(replace(promise, demand_usd=10.0, on_spot=True, alone=False), "a", [4.0, 6.0], [0, 0])
    on_demand = cell_of(replace(promise, demand_usd=10.0, on_spot=False, alone=True), "b", [4.0, 6.0], [0, 0])
    assert [figures.tolist() for figures in plan_over_spot(on_spot)] == [[0.4, 0.6], [0.4, 0.6]]
    assert [figures.tolist() for figures in plan_over_alone(on_spot)] == [[0.4, 0.6], [1.0, 1.0]]
    assert [figures.tolist() for figures in plan_over_spot(on_demand)] == [[1.0, 1.0], [0.4, 0.6]]
    assert [figures.tolist() for figures in plan_over_alone(on_demand)] == [[1.0, 1.0], [0.4, 0.6]]
