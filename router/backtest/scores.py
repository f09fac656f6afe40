"""Scores: the cost of policies over the windows of a cell, side by side, with its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from router.backtest.windows import BacktestCell, BacktestPart, WindowLayout, build_window_inputs, compute_on_demand_usd
from router.spot.availability.calibration import Interval, bootstrap_interval
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import WindowOutcomes
from router.spot.simulator.traces import Floats, Ints


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
