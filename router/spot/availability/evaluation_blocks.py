"""Recorded availability for learning and scoring quotes: blocks of time, the jobs quoted in them, and their outcomes.

The outcomes are those that came, or that might have come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import ZoneStates, age_class, ages_h
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.traces import Bools, Floats, Ints, Series, ZoneSeries

_TRIED: Final = 48  # candidate ticks from which a seam takes the most similar one
BLOCKS: Final = 6
PIECE_H: Final = 12.0


@dataclass(frozen=True, eq=False, slots=True)
class EvaluationTraces:
    """A series with the jobs that are quoted on it.

    ``parts`` is the zones of each job. ``up``, ``ages`` and ``usd`` are by [zone, tick].
    """

    series: Series
    tasks: tuple[Task, ...]
    parts: tuple[Ints, ...]
    ways: ZoneMoveCosts
    up: Bools
    ages: Floats
    usd: Floats

    @classmethod
    def of(
        cls, series: Series, tasks: tuple[Task, ...], parts: tuple[Ints, ...], ways: ZoneMoveCosts
    ) -> EvaluationTraces:
        """Return the series with its availability, ages and prices."""
        up = series.up()
        return cls(series, tasks, parts, ways, up, ages_h(up, series.tick_s), series.spot_usd())

    def edges(self) -> list[int]:
        """Return the first tick of each block, and the end."""
        return [self.series.ticks * b // BLOCKS for b in range(BLOCKS + 1)]

    def starts(self, block: int, count: int) -> Ints:
        """Return the ticks before the windows of a block begin, evenly spaced."""
        edges = self.edges()
        return np.linspace(edges[block], edges[block + 1], count, endpoint=False).astype(np.int64) - 1

    def state(self, zones: Ints, at: Ints) -> ZoneStates:
        """Return the states by [window, zone] at these ticks."""
        return ZoneStates(self.up[zones][:, at].T, self.ages[zones][:, at].T)

    def inputs(self, zones: Ints, job: Task, which: Ints) -> SimulationInputs:
        """Return windows of the ticks [window, tick]."""
        flat = which.ravel()
        zone_series = tuple(
            ZoneSeries(z.zone, z.region, self.up[i][flat].astype(np.int64), self.usd[i][flat], z.on_demand_usd_per_hour)
            for i, z in ((i, self.series.zones[i]) for i in zones)
        )
        ways = ZoneMoveCosts(self.ways.egress_usd[np.ix_(zones, zones)], self.ways.transfer_s[np.ix_(zones, zones)])
        starts = which.shape[1] * np.arange(len(which))
        return SimulationInputs.of(job, Series(self.series.tick_s, zone_series), starts, ways)

    def real(self, zones: Ints, job: Task, at: Ints) -> SimulationInputs:
        """Return what followed each of these ticks; raise ValueError where the series ends before."""
        ticks = job.ticks(self.series.tick_s)
        return self.inputs(zones, job, at[:, None] + np.arange(1, ticks + 1))

    def made(self, zones: Ints, job: Task, at: Ints, block: int, rng: np.random.Generator) -> SimulationInputs:
        """Return what might have followed each of these ticks in this block: pieces of its real availability."""
        edges, tick_s = self.edges(), self.series.tick_s
        following = resample_ticks(
            self.up[zones],
            self.ages[zones],
            range(edges[block], edges[block + 1]),
            at,
            job.ticks(tick_s),
            PIECE_H * HOUR_S / tick_s,
            rng,
        )
        return self.inputs(zones, job, following)


def resample_ticks(
    up: Bools, ages: Floats, block: range, starts: Ints, ticks: int, piece: float, rng: np.random.Generator
) -> Ints:
    """Return by [window, tick] the ticks of ``up`` [zone, tick] that follow each of ``starts``.

    All are of ``block``; pieces are ``piece`` ticks long on average. Raise ValueError where the block is shorter than
    two ticks.
    """
    if len(block) < 2:
        raise ValueError("a block to resample needs at least two ticks")
    look = (up * 8 + age_class(ages)).T.astype(np.int64)  # [tick, zone]
    states = up.T
    at, ticks_drawn = starts.copy(), np.empty((starts.size, ticks), dtype=np.int64)
    for i in range(ticks):
        seam = np.flatnonzero((rng.random(at.size) < 1 / piece) | (at + 1 >= block.stop))
        if seam.size:
            candidates = rng.integers(block.start, block.stop - 1, (seam.size, _TRIED))
            current = at[seam][:, None]
            distance = 4 * (states[candidates] != states[current]).sum(axis=2) + (
                look[candidates] != look[current]
            ).sum(axis=2)
            at[seam] = candidates[np.arange(seam.size), np.argmin(distance, axis=1)]
        at = at + 1
        ticks_drawn[:, i] = at
    return ticks_drawn
