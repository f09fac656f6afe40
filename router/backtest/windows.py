"""Windows of recorded availability for a back-test, played by policies with forward chaining.

A policy learns from the blocks of time before the one in which a window begins. Parts are independent of each other:
they can be played anywhere, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from router.spot.live.as_run import play_as_run
from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.registry import OUR_POLICY, RegisteredPolicy, find_policy, registered_policies
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import WindowOutcomes
from router.spot.simulator.traces import Floats, Ints, Series

AS_RUN: Final = "as-run"
OPTIMUM: Final = "optimum"
_AS_RUN: Final = RegisteredPolicy(
    AS_RUN, "stepfare's own exactly as `watch` runs it: asks zones, fits, deadline guard", plays=play_as_run, exact=True
)
# Our two policies stand first.
POLICIES: Final[Mapping[str, RegisteredPolicy]] = MappingProxyType(
    {OUR_POLICY: registered_policies()[OUR_POLICY], AS_RUN: _AS_RUN, **registered_policies()}
)


def find_backtest_policy(name: str) -> RegisteredPolicy:
    """Return the policy of that name; else raise KeyError with similar names, or with all."""
    return find_policy(name, POLICIES)


@dataclass(frozen=True, eq=False, slots=True)
class BacktestSite:
    """Zones that a job may use together.

    ``past`` has all zones on its clock from which may be learned, its own among them. ``source`` is the recording;
    sites of one source share its availability.
    """

    name: str
    series: Series
    past: Series
    source: int


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """The cost of moving a checkpoint between regions; moves within a region are free."""

    checkpoint_gb: float = 0.0
    usd_per_gb: float = 0.0
    seconds: int = 0

    def ways(self, series: Series) -> ZoneMoveCosts:
        """Return the costs of moves between the zones of ``series``."""
        return ZoneMoveCosts.between(series.regions, lambda _, __: self.checkpoint_gb * self.usd_per_gb, self.seconds)


@dataclass(frozen=True, eq=False, slots=True)
class BacktestCell:
    """One job with one deadline in places of one kind; the windows of all its sites are scored together.

    ``zones`` is the number of zones of a site.
    """

    job: str
    place: str
    zones: int
    task: Task
    move: CheckpointMove
    sites: tuple[BacktestSite, ...]


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """The layout of windows: ``blocks`` blocks of time, and one window every ``every_s`` seconds.

    Nothing is scored in the first block, which alone has no past, unless it is the only one.
    """

    blocks: int
    every_s: int

    def edges(self, series: Series) -> Ints:
        """Return the ticks at which blocks begin, and the end."""
        return np.array([series.ticks * b // self.blocks for b in range(self.blocks + 1)], dtype=np.int64)

    @property
    def scored(self) -> range:
        return range(min(1, self.blocks - 1), self.blocks)

    def starts(self, site: BacktestSite, task: Task, block: int) -> Ints:
        """Return the starts of the windows that begin in a block and end within the series; may be none."""
        edges, tick_s = self.edges(site.series), site.series.tick_s
        after = min(int(edges[block + 1]), site.series.ticks - task.ticks(tick_s) + 1)
        return np.arange(int(edges[block]), max(after, int(edges[block])), max(1, round(self.every_s / tick_s)))


@dataclass(frozen=True, slots=True)
class BacktestPart:
    """A policy, or the optimum, in one block of one site of one cell.

    The numbers are indexes in their lists.
    """

    cell: int
    site: int
    block: int
    policy: str


def list_backtest_parts(
    cells: Sequence[BacktestCell], windows: WindowLayout, policies: Sequence[str]
) -> Iterator[BacktestPart]:
    """Yield all parts with a window in them, in a fixed order; the optimum of each first."""
    for c, cell in enumerate(cells):
        for s, site in enumerate(cell.sites):
            for block in windows.scored:
                if windows.starts(site, cell.task, block).size:
                    yield from (BacktestPart(c, s, block, policy) for policy in (OPTIMUM, *policies))


def build_window_inputs(cell: BacktestCell, site: BacktestSite, starts: Ints) -> SimulationInputs:
    """Return the inputs for the windows that begin at these ticks."""
    return SimulationInputs.of(cell.task, site.series, starts, cell.move.ways(site.series))


def select_past(site: BacktestSite, windows: WindowLayout, block: int) -> Series | None:
    """Return what was seen before a block; None before the first."""
    edge = int(windows.edges(site.series)[block])
    return site.past.part(0, edge) if edge else None


def play_part(
    cells: Sequence[BacktestCell], windows: WindowLayout, part: BacktestPart, *, paid: bool = False
) -> WindowOutcomes | Floats:
    """Return the outcome of a part's policy; for the optimum the least dollars of each window.

    ``part`` is one of :func:`list_backtest_parts`.
    """
    cell = cells[part.cell]
    site = cell.sites[part.site]
    inputs = build_window_inputs(cell, site, windows.starts(site, cell.task, part.block))
    if part.policy == OPTIMUM:
        return compute_least_usd(inputs, moves_at_once=True)  # as policies of both simulators are compared with it
    past = select_past(site, windows, part.block)
    return find_backtest_policy(part.policy).play(past, inputs, cell.move.checkpoint_gb, paid=paid)


def compute_on_demand_usd(inputs: SimulationInputs) -> float:
    """Return the cost of a window on demand from its first tick on, where that is cheapest.

    Whole ticks are billed.
    """
    task = inputs.task
    ticks = -(-(task.work_s + task.changeover_s) // inputs.tick_s)
    return float(ticks * inputs.tick_s / HOUR_S * inputs.on_demand_usd.min())
