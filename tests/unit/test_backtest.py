"""Windows and blocks, what may be learned from, what comes of all parts together, and how it is judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.backtest.scores import pick_telling_window, pick_widest_window, pool_windows, score_policies
from router.backtest.windows import (
    OPTIMUM,
    BacktestCell,
    BacktestPart,
    BacktestSite,
    CheckpointMove,
    WindowLayout,
    build_window_inputs,
    compute_on_demand_usd,
    list_backtest_parts,
    play_part,
    select_past,
)
from router.spot.policies.omniscient import compute_least_usd
from router.spot.simulator.inputs import Task
from router.spot.simulator.simulation import WindowOutcomes
from router.spot.simulator.traces import Series, ZoneSeries

TICK_S, TICKS = 3600, 240
TASK = Task(10 * TICK_S, 14 * TICK_S, 720)
WINDOWS = WindowLayout(blocks=6, every_s=6 * TICK_S)


def zone(name: str, seed: int, ticks: int = TICKS) -> ZoneSeries:
    rng = np.random.default_rng(seed)
    up = np.cumsum(rng.random(ticks) < 0.2) % 2
    return ZoneSeries(name, f"region-{name}", up, 1 + rng.random(ticks) / 10, 3.0)


def cell(*names: str, source: int = 0, joined: bool = False, task: Task = TASK) -> BacktestCell:
    whole = Series(TICK_S, tuple(zone(name, number) for number, name in enumerate(names)))
    chosen = [list(names)] if joined else [[name] for name in names]
    sites = tuple(BacktestSite("+".join(some), whole.only(some), whole, source) for some in chosen)
    return BacktestCell("job", "place", len(chosen[0]), task, CheckpointMove(50.0, 0.02), sites)


def test_windows_begin_in_their_block_end_within_the_series_and_the_first_block_is_for_learning() -> None:
    one = cell("a")
    starts = [WINDOWS.starts(one.sites[0], TASK, block).tolist() for block in range(6)]
    assert list(WINDOWS.scored) == [1, 2, 3, 4, 5]
    assert starts[1] == [40, 46, 52, 58, 64, 70, 76]
    assert starts[5] == [200, 206, 212, 218, 224]  # the next would end after the last tick
    assert select_past(one.sites[0], WINDOWS, 0) is None
    assert [getattr(select_past(one.sites[0], WINDOWS, b), "ticks", 0) for b in WINDOWS.scored] == [
        40,
        80,
        120,
        160,
        200,
    ]
    assert list(WindowLayout(1, 3600).scored) == [0]
    long = Task(180 * TICK_S, 200 * TICK_S, 0)
    assert WINDOWS.starts(one.sites[0], long, 1).tolist() == [40]
    assert not WINDOWS.starts(one.sites[0], long, 2).size
    assert {part.block for part in list_backtest_parts([cell("a", task=long)], WINDOWS, ["up"])} == {1}


def test_parts_are_the_optimum_and_each_policy_of_each_block_of_each_site() -> None:
    found = list(list_backtest_parts([cell("a", "b"), cell("a", "b", joined=True)], WINDOWS, ["up", "greedy"]))
    assert len(found) == len(set(found)) == (2 + 1) * 5 * 3
    assert found[:3] == [BacktestPart(0, 0, 1, OPTIMUM), BacktestPart(0, 0, 1, "up"), BacktestPart(0, 0, 1, "greedy")]


@pytest.mark.parametrize("policy", ["ours", "up"])
def test_nothing_is_learned_from_what_comes_after(policy: str) -> None:
    """Availability after the last window of a block, and in the past's place of later blocks, changes nothing."""
    one = cell("a")
    part = BacktestPart(0, 0, 1, policy)
    last = int(WINDOWS.starts(one.sites[0], TASK, 1)[-1]) + TASK.ticks(TICK_S)
    site = one.sites[0]
    counts = site.series.zones[0].counts.copy()
    counts[last:] = 1 - counts[last:]
    other = Series(TICK_S, (replace(site.series.zones[0], counts=counts),))
    changed = replace(one, sites=(replace(site, series=other, past=other),))
    first, second = (play_part([c], WINDOWS, part) for c in (one, changed))
    assert isinstance(first, WindowOutcomes)
    assert isinstance(second, WindowOutcomes)
    assert first.usd.tolist() == second.usd.tolist()


def test_moves_cost_between_regions_only() -> None:
    series = cell("a", "b", joined=True).sites[0].series
    ways = CheckpointMove(50.0, 0.02, 90).ways(series)
    assert ways.egress_usd.tolist() == [[0, 1], [1, 0]]
    assert ways.transfer_s.tolist() == [[0, 90], [90, 0]]


def test_pooled_windows_are_those_played_and_scores_are_their_means() -> None:
    cells = [cell("a", "b"), cell("a", "b", joined=True)]
    found = {part: play_part(cells, WINDOWS, part) for part in list_backtest_parts(cells, WINDOWS, ("up", "greedy"))}
    each, both = pool_windows(cells, WINDOWS, found)
    assert each.start.size == 2 * both.start.size
    inputs = build_window_inputs(cells[0], cells[0].sites[1], WINDOWS.starts(cells[0].sites[1], TASK, 2))
    mine = (each.site == 1) & (each.block == 2)
    assert each.start[mine].tolist() == inputs.starts.tolist()
    assert each.least_usd[mine] == pytest.approx(compute_least_usd(inputs, moves_at_once=True))
    assert (
        each.demand_usd[mine].tolist()
        == [compute_on_demand_usd(inputs)] * inputs.starts.size
        == [33.0] * inputs.starts.size
    )
    assert len({site for site, stretch in zip(each.site, each.stretch, strict=True) if stretch == 3}) == 2
    best, other = score_policies(each)
    assert best.usd <= other.usd
    assert (best.against, other.against) == (other.policy, best.policy)
    assert best.usd == pytest.approx(each.played[best.policy].usd.mean())
    assert best.share == pytest.approx(best.usd / 33)
    assert best.over == pytest.approx(best.usd / each.least_usd.mean() - 1)
    assert best.difference is not None
    assert other.difference is not None
    assert best.difference.mean == pytest.approx((best.usd - other.usd) / 33) == pytest.approx(-other.difference.mean)
    assert best.difference.low <= best.difference.mean <= best.difference.high
    assert best.misses == other.misses == 0
    assert best.spot_h > 0


def test_one_policy_has_nobody_to_be_compared_with() -> None:
    cells = [cell("a")]
    found = {part: play_part(cells, WINDOWS, part) for part in list_backtest_parts(cells, WINDOWS, ("up",))}
    (only,) = score_policies(pool_windows(cells, WINDOWS, found)[0])
    assert (only.against, only.difference) == (None, None)
    assert 1 <= only.effective <= 15  # of a window's length each: 40 // 14 to 224 // 14


def test_sources_do_not_share_stretches() -> None:
    first, second = cell("a"), cell("b", source=1)
    both = replace(first, sites=(*first.sites, *second.sites))
    found = {part: play_part([both], WINDOWS, part) for part in list_backtest_parts([both], WINDOWS, ("up",))}
    pooled = pool_windows([both], WINDOWS, found)[0]
    assert not set(pooled.stretch[pooled.site == 0]) & set(pooled.stretch[pooled.site == 1])


def test_the_window_shown_is_of_the_widest_cell_and_one_in_which_policies_differ() -> None:
    cells = [
        cell("a"),
        cell("a", "b", joined=True, task=Task(TASK.work_s, 20 * TICK_S, 720)),
        cell("a", "b", joined=True),
    ]
    found = {part: play_part(cells, WINDOWS, part) for part in list_backtest_parts(cells, WINDOWS, ("up", "greedy"))}
    pools = pool_windows(cells, WINDOWS, found)
    shown = pick_widest_window(pools)
    assert shown.cell is cells[2]
    assert shown.up.shape == (2, TASK.ticks(TICK_S))
    assert shown.start == pick_telling_window(pools[2]).start
    usd = np.stack([pools[2].least_usd, *(p.usd for p in pools[2].played.values())])
    spread = np.ptp(usd, axis=0)
    mine = spread[pools[2].start == shown.start][0]
    assert 0.7 <= (spread <= mine).mean() <= 0.95
