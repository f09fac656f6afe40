"""Scores: the cost of policies over the windows of a cell, with its uncertainty, and what ran where in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from router.backtest.windows import (
    BacktestCell,
    BacktestPart,
    WindowLayout,
    build_window_inputs,
    compute_on_demand_usd,
    find_backtest_policy,
    select_past,
)
from router.spot.availability.calibration import Interval, bootstrap_interval
from router.spot.simulator.blind_policy import BlindView
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, FullView, InstanceKinds, WindowOutcomes
from router.spot.simulator.traces import Bools, Floats, Ints


@dataclass(frozen=True, eq=False, slots=True)
class PooledWindows:
    """All windows of a cell, in the order of sites and blocks.

    ``site`` and ``block`` are their numbers; ``start`` is a tick of the site's series. Windows of different ``stretch``
    hardly share availability. ``played`` is by policy.
    """

    cell: BacktestCell
    site: Ints
    block: Ints
    start: Ints
    stretch: Ints
    demand_usd: Floats
    least_usd: Floats
    played: Mapping[str, WindowOutcomes]

    @property
    def apart(self) -> int:
        """The largest number of windows of which no two overlap in one site."""
        return len(set(zip(self.site.tolist(), self.stretch.tolist(), strict=True)))

    def hours(self, ticks: Ints) -> Floats:
        """Return by [window] the hours of these ticks."""
        tick_s = np.array([site.series.tick_s for site in self.cell.sites], dtype=np.int64)
        hours: Floats = ticks * tick_s[self.site] / HOUR_S
        return hours


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """Means of a policy over windows.

    ``share`` is the cost as a share of on-demand from the start; ``over`` is the cost over the least possible one, less
    one. ``against`` is the cheapest of the other policies, and ``difference`` the paired difference to it as a share of
    on-demand, with its 90 % block bootstrap interval; both are None where there is no other. ``effective`` is the
    number of independent windows that would give the same certainty, at most those that do not overlap. ``misses`` are
    windows past their deadline. Hours and launches are of a window.
    """

    policy: str
    usd: float
    share: float
    over: float
    against: str | None
    difference: Interval | None
    effective: float
    misses: int
    spot_h: float
    on_demand_h: float
    launches: float


def pool_windows(
    cells: Sequence[BacktestCell], windows: WindowLayout, results: Mapping[BacktestPart, WindowOutcomes | Floats]
) -> tuple[PooledWindows, ...]:
    """Return each cell that has a window, pooled from all its parts."""
    return tuple(
        _pool_cell(cell, windows, {part: value for part, value in results.items() if part.cell == c})
        for c, cell in enumerate(cells)
        if any(part.cell == c for part in results)
    )


def _pool_cell(
    cell: BacktestCell, windows: WindowLayout, results: Mapping[BacktestPart, WindowOutcomes | Floats]
) -> PooledWindows:
    longest = max(site.series.ticks for site in cell.sites)
    columns: dict[str, list[Ints]] = {"site": [], "block": [], "start": [], "stretch": []}
    demand, least, by_policy = list[Floats](), list[Floats](), dict[str, list[WindowOutcomes]]()
    for number, block in sorted({(part.site, part.block) for part in results}):
        site = cell.sites[number]
        starts = windows.starts(site, cell.task, block)
        columns["site"].append(np.full(starts.size, number))
        columns["block"].append(np.full(starts.size, block))
        columns["start"].append(starts)
        # A stretch has the length of a window: windows that begin that far apart share no availability.
        columns["stretch"].append(starts // max(1, cell.task.ticks(site.series.tick_s)) + site.source * longest)
        demand.append(np.full(starts.size, compute_on_demand_usd(build_window_inputs(cell, site, starts))))
        for part, value in results.items():
            if (part.site, part.block) != (number, block):
                continue
            if isinstance(value, WindowOutcomes):
                by_policy.setdefault(part.policy, []).append(value)
            else:
                least.append(value)
    return PooledWindows(
        cell=cell,
        demand_usd=np.concatenate(demand),
        least_usd=np.concatenate(least),
        played={name: _join_parts(values) for name, values in by_policy.items()},
        **{name: np.concatenate(values) for name, values in columns.items()},
    )


def _join_parts(values: Sequence[WindowOutcomes]) -> WindowOutcomes:
    return WindowOutcomes(
        *(np.concatenate([getattr(v, field.name) for v in values]) for field in fields(WindowOutcomes))
    )


def score_policies(pooled: PooledWindows) -> tuple[PolicyScore, ...]:
    """Return the score of each policy, the cheapest first."""
    means = {name: float(played.usd.mean()) for name, played in pooled.played.items()}
    return tuple(_score(pooled, name, means) for name in sorted(means, key=lambda name: (means[name], name)))


def _score(pooled: PooledWindows, name: str, means: Mapping[str, float]) -> PolicyScore:
    played = pooled.played[name]
    others = {other: usd for other, usd in means.items() if other != name}
    against = min(others, key=lambda other: (others[other], other)) if others else None
    difference = None
    uncertainty = bootstrap_interval(played.usd / pooled.demand_usd, pooled.stretch)
    if against is not None:
        paired_difference = (played.usd - pooled.played[against].usd) / pooled.demand_usd
        uncertainty = difference = bootstrap_interval(paired_difference, pooled.stretch)
    return PolicyScore(
        policy=name,
        usd=means[name],
        share=means[name] / float(pooled.demand_usd.mean()),
        over=means[name] / float(pooled.least_usd.mean()) - 1,
        against=against,
        difference=difference,
        effective=min(uncertainty.effective, float(pooled.apart)),
        misses=int(played.late.sum()),
        spot_h=float(pooled.hours(played.spot_ticks).mean()),
        on_demand_h=float(pooled.hours(played.on_demand_ticks).mean()),
        launches=float(played.launches.mean()),
    )


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
