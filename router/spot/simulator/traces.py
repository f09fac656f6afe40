"""Availability traces: the number of spot machines available in each zone, and their price, by tick of one clock.

Dollars are floats in this module and in those that simulate with it: they are statistics, never a bill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class ZoneSeries:
    """The trace of one zone: ``counts[i]`` is the number of spot machines available during tick i, at least 0.

    ``spot_usd_per_hour[i]`` and ``on_demand_usd_per_hour`` are of one machine, above zero; the latter is infinite where
    on-demand is not sold. A zone without spot has counts of zero, at any price. Anything else, and arrays of different
    lengths, raise ValueError. The arrays are locked against writing.
    """

    zone: str
    region: str
    counts: Ints
    spot_usd_per_hour: Floats
    on_demand_usd_per_hour: float

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or self.counts.shape != self.spot_usd_per_hour.shape:
            raise ValueError(f"{self.zone}: give as many prices as counts, one a tick")
        if (self.counts < 0).any():
            raise ValueError(f"{self.zone}: a count is below zero; give counts of at least zero")
        spot = self.spot_usd_per_hour
        if not (np.isfinite(spot) & (spot > 0)).all() or not self.on_demand_usd_per_hour > 0:
            raise ValueError(f"{self.zone}: a price is not above zero; give prices above zero")
        self.counts.flags.writeable = False
        self.spot_usd_per_hour.flags.writeable = False


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """Traces of several zones on one clock: tick i of each begins ``i * tick_s`` seconds after the first.

    Raise ValueError where they do not fit together.
    """

    tick_s: int
    zones: tuple[ZoneSeries, ...]

    def __post_init__(self) -> None:
        if self.tick_s <= 0:
            raise ValueError("a tick must be longer than zero seconds")
        if not self.zones:
            raise ValueError("a series needs at least one zone")
        if len({z.counts.size for z in self.zones}) > 1:
            raise ValueError("the zones have different numbers of ticks")
        if len({z.zone for z in self.zones}) < len(self.zones):
            raise ValueError("a zone appears twice; give each zone once")

    @property
    def ticks(self) -> int:
        return int(self.zones[0].counts.size)

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(z.region for z in self.zones)

    def up(self, size: int = 1) -> Bools:
        """Return by [zone, tick] whether a gang of ``size`` machines could start together: all of them or none."""
        if size < 1:
            raise ValueError("a gang has at least one machine")
        return np.stack([z.counts >= size for z in self.zones])

    def spot_usd(self, size: int = 1) -> Floats:
        """Return by [zone, tick] the dollars an hour of ``size`` spot machines."""
        return size * np.stack([z.spot_usd_per_hour for z in self.zones])

    def on_demand_usd(self, size: int = 1) -> Floats:
        """Return by [zone] the dollars an hour of ``size`` on-demand machines; infinite where none is sold."""
        return size * np.array([z.on_demand_usd_per_hour for z in self.zones])

    def part(self, first: int, after: int) -> Series:
        """Return ticks ``first`` to ``after - 1``."""
        return self._cut(slice(first, after), self.tick_s)

    def every(self, step: int) -> Series:
        """Return the trace that a slower prober would have recorded: every ``step``-th tick, on a slower clock."""
        if step < 1:
            raise ValueError("a clock can only be made slower: give a step of at least 1")
        return self._cut(slice(None, None, step), self.tick_s * step)

    def only(self, names: Sequence[str]) -> Series:
        """Return these zones in this order; raise KeyError for one that is not there."""
        by_name = {z.zone: z for z in self.zones}
        return Series(self.tick_s, tuple(by_name[name] for name in names))

    def _cut(self, which: slice, tick_s: int) -> Series:
        zones = tuple(
            replace(z, counts=z.counts[which].copy(), spot_usd_per_hour=z.spot_usd_per_hour[which].copy())
            for z in self.zones
        )
        return Series(tick_s, zones)
