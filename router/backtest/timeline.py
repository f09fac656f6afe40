"""Timelines: what ran where in one window, tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from router.backtest.scores import PooledWindows
from router.backtest.windows import BacktestCell, WindowLayout, build_window_inputs, find_backtest_policy, select_past
from router.spot.simulator.blind_policy import BlindView
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, FullView, InstanceKinds
from router.spot.simulator.traces import Bools, Ints

_TELLING = 0.8


@dataclass(frozen=True, eq=False, slots=True)
class PolicyTimeline:
    """One policy in one window.

    ``kind`` and ``zone`` are by tick until the work is done; ``zone`` is ``NOWHERE`` where no spot runs. ``fresh``:
    something was launched there in that tick.
    """

    policy: str
    kind: InstanceKinds
    zone: Ints
    fresh: Bools
    usd: float
    late: bool


@dataclass(frozen=True, eq=False, slots=True)
class ShownWindow:
    """A window of a site of a cell: its numbers, and the zones' availability in it, [zone, tick]."""

    cell: BacktestCell
    site: int
    block: int
    start: int
    up: Bools


def pick_widest_window(pools: Sequence[PooledWindows]) -> ShownWindow:
    """Return a telling window of the cell with the most zones, of those the one with the tightest deadline."""
    return pick_telling_window(min(pools, key=lambda p: (-p.cell.zones, p.cell.task.deadline_s / p.cell.task.work_s)))


def pick_telling_window(pooled: PooledWindows) -> ShownWindow:
    """Return a window in which costs differ more between policies, and the optimum, than in four of five windows."""
    usd = np.stack([pooled.least_usd, *(played.usd for played in pooled.played.values())])
    spread = np.ptp(usd, axis=0) / pooled.demand_usd
    number = int(np.argsort(spread, kind="stable")[int(_TELLING * (spread.size - 1))])
    site, block, start = (int(values[number]) for values in (pooled.site, pooled.block, pooled.start))
    series, task = pooled.cell.sites[site].series, pooled.cell.task
    up = series.up(task.size)[:, start : start + task.ticks(series.tick_s)]
    return ShownWindow(pooled.cell, site, block, start, up)


def follow_window(
    shown: ShownWindow, windows: WindowLayout, policies: Sequence[str], *, paid: bool = False
) -> tuple[PolicyTimeline, ...]:
    """Return the window as each policy plays it, the same as among other windows."""
    site = shown.cell.sites[shown.site]
    inputs = build_window_inputs(shown.cell, site, np.array([shown.start], dtype=np.int64))
    past = select_past(site, windows, shown.block)
    timelines = []
    for name in policies:
        record = _Record()
        played = find_backtest_policy(name).play(past, inputs, shown.cell.move.checkpoint_gb, paid=paid, watch=record)
        # The guard of a blind policy removes a window once it is on demand to its end.
        rest = int(played.finish_tick[0]) - len(record.seen)
        seen = [*record.seen, *([(ON_DEMAND, NOWHERE)] * rest)]
        kind = np.array([k for k, _ in seen], dtype=np.int8)
        zone = np.array([z if k not in (IDLE, ON_DEMAND) else NOWHERE for k, z in seen], dtype=np.int64)
        before = np.append(np.int8(IDLE), kind[:-1]), np.append(NOWHERE, zone[:-1])
        fresh = (kind != IDLE) & ((kind != before[0]) | (zone != before[1]))
        timelines.append(PolicyTimeline(name, kind, zone, fresh, float(played.usd[0]), bool(played.late[0])))
    return tuple(timelines)


class _Record:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, now: FullView | BlindView) -> None:
        if now.window.size:
            self.seen.append((int(now.kind[0]), int(now.zone[0])))
