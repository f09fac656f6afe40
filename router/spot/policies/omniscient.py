"""Lower bound on a window's cost, had its availability been known: the bound that every policy is compared with.

Exact dynamic programming over (tick, what runs where, time lost so far), backwards. Time lost s, in units of gcd(tick,
d), is the time that passed without progress: at tick i the work done is i * tick - s. So running changes no s, a tick
of waiting adds a tick, a launch adds its delay, and the deadline is met exactly where s stays within the slack R - C.
The rules are those of :mod:`router.spot.simulator.simulation` without the guard; a launch that would be lost before it
makes progress is never worth its price and is left out. Transfer times are rounded down to units, which keeps it a
lower bound.

The blind simulator moves the checkpoint with the first tick that is billed, before any progress: there a launch for one
tick can be worth its price, as the next one, in the same place, need not transfer again.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.traces import Floats, Ints

_MOST_VALUES = 2**26  # held at once: 256 MiB in single precision
Values = NDArray[Any]  # [time lost, window], of the requested float type


def compute_least_usd(
    inputs: SimulationInputs, dtype: type[np.floating[Any]] = np.float32, *, moves_at_once: bool = False
) -> Floats:
    """Return the least dollars of each window; infinite where the deadline cannot be met.

    Single precision is good to one part in 10^5 and twice as fast as double. With ``moves_at_once`` the bound also
    holds for the blind simulator's rule that the checkpoint is where a tick last ran. Raise ValueError where zones
    differ in speed.
    """
    if not inputs.alike:
        raise ValueError("the lower bound supports zones of one speed only")
    if inputs.ticks * inputs.tick_s < inputs.task.work_s:
        return np.full(inputs.starts.size, np.inf)
    first = _BackwardInduction(inputs, dtype, moves_at_once)
    most = max(1, _MOST_VALUES // first.values_a_window)
    if inputs.starts.size <= most:
        return first.solve()
    parts = [replace(inputs, starts=inputs.starts[i : i + most]) for i in range(0, inputs.starts.size, most)]
    return np.concatenate([_BackwardInduction(part, dtype, moves_at_once).solve() for part in parts])


class _BackwardInduction:
    """Values of ``len(ring)`` ticks: ``spot[i % n][z]``, ``demand[i % n][place]``, ``idle[i % n][place]``.

    A place is a set of zones between which the checkpoint moves free and at once.
    """

    def __init__(self, inputs: SimulationInputs, dtype: type[np.floating[Any]], moves_at_once: bool) -> None:
        self.inputs, self.dtype, self.moves_at_once = inputs, dtype, moves_at_once
        task, g = inputs.task, inputs.tick_s
        self.unit = gcd(g, task.changeover_s)
        self.tick = g // self.unit
        self.lost = (inputs.ticks * g - task.work_s) // self.unit
        self.place = _number_places(inputs)
        self.members = [np.flatnonzero(self.place == p) for p in range(int(self.place.max()) + 1)]
        first = [int(m[0]) for m in self.members]
        self.egress = inputs.ways.egress_usd[np.ix_(first, first)].astype(dtype)
        delay = task.changeover_s + inputs.ways.transfer_s[np.ix_(first, first)]
        self.delay: Ints = delay // self.unit
        self.takes: Ints = np.maximum(1, -(-self.delay // self.tick))
        self.start = task.changeover_s // self.unit
        self.layers = int(self.takes.max()) + 1
        self.values_a_window = self.layers * (len(self.place) + 2 * len(self.members)) * (self.lost + 1)
        share = g / HOUR_S
        self.demand_usd = [dtype(inputs.on_demand_usd[m].min() * share) for m in self.members]
        at = inputs.starts + np.arange(inputs.ticks)[:, None]
        self.spot_usd = np.where(inputs.up[:, at], inputs.spot_usd[:, at] * share, np.inf).astype(dtype)

    def solve(self) -> Floats:
        inputs, task, g = self.inputs, self.inputs.task, self.inputs.tick_s
        shape = (self.lost + 1, inputs.starts.size)
        self.spot: Values = np.zeros((self.layers, len(self.place), *shape), self.dtype)
        self.demand: Values = np.zeros((self.layers, len(self.members), *shape), self.dtype)
        self.idle: Values = np.zeros((self.layers, len(self.members), *shape), self.dtype)
        best = np.full(inputs.starts.size, np.inf, self.dtype)
        for i in range(inputs.ticks - 1, -1, -1):
            low = max(0, (i * g - task.work_s) // self.unit + 1)
            high = min(self.lost, i * self.tick) + 1
            self._tick(i, low, high)
            begun = i * self.tick  # the time lost where nothing was ever launched
            for p in range(len(self.members)) if begun <= self.lost else ():
                at = slice(begun, begun + 1)
                best = np.minimum(best, self._best_launch(i, p, self.start, at)[0])
        return best.astype(np.float64)

    def _tick(self, i: int, low: int, high: int) -> None:
        now, after, at = i % self.layers, (i + 1) % self.layers, slice(low, high)
        places = range(len(self.members))
        for values in (self.spot, self.demand, self.idle):
            values[now, :, :low] = 0  # done
        from_any = {
            (int(self.delay[a, b]), b): self._best_launch(i, b, int(self.delay[a, b]), at)
            for a in places
            for b in places
        }
        for a in places:
            idle = self.idle[now, a, at]
            idle[:] = np.inf
            stays = max(low, min(high, self.lost + 1 - self.tick))
            idle[: stays - low] = self.idle[after, a, low + self.tick : stays + self.tick]
            for b in places:
                there = from_any[int(self.delay[a, b]), b]
                np.minimum(idle, there + self.egress[a, b] if a != b else there, out=idle)
                if self.moves_at_once and a != b and self.takes[a, b] > 1:
                    moved = (
                        self._tick_usd(i, b)
                        + self.egress[a, b]
                        + self.idle[after, b, low + self.tick : stays + self.tick]
                    )
                    np.minimum(idle[: stays - low], moved, out=idle[: stays - low])
            demand = self.demand[now, a, at]
            np.add(self.demand[after, a, at], self.demand_usd[a], out=demand)
            np.minimum(demand, idle, out=demand)
            for z in self.members[a]:
                spot = self.spot[now, z, at]
                np.add(self.spot[after, z, at], self.spot_usd[z, i], out=spot)
                np.minimum(spot, idle, out=spot)

    def _tick_usd(self, i: int, place: int) -> Values:
        """Return by [window] the cost of tick i in ``place``, on spot or on demand."""
        spot_usd: Values = self.spot_usd[self.members[place], i].min(axis=0)
        return np.minimum(spot_usd, self.demand_usd[place])

    def _best_launch(self, i: int, place: int, delay: int, at: slice) -> Values:
        """Return the cost of the best launch at tick i anywhere in ``place``, by time lost before it."""
        best = np.full((at.stop - at.start, self.inputs.starts.size), np.inf, self.dtype)
        takes = max(1, -(-delay // self.tick))
        count = min(at.stop, self.lost + 1 - delay) - at.start
        if i + takes > self.inputs.ticks or count <= 0:
            return best
        then, later = (i + takes) % self.layers, slice(at.start + delay, at.start + delay + count)
        np.add(self.demand[then, place, later], self.dtype(takes) * self.demand_usd[place], out=best[:count])
        for z in self.members[place]:
            usd = self.spot_usd[z, i : i + takes].sum(axis=0)
            if np.isfinite(usd).any():
                np.minimum(best[:count], self.spot[then, z, later] + usd, out=best[:count])
        return best


def _number_places(inputs: SimulationInputs) -> Ints:
    ways = inputs.ways
    numbers: dict[tuple[bytes, ...], int] = {}
    place_of_zone = []
    for z in range(len(inputs.zones)):
        about = (ways.egress_usd[z], ways.egress_usd[:, z], ways.transfer_s[z], ways.transfer_s[:, z])
        key = tuple(a.tobytes() for a in about)
        place_of_zone.append(numbers.setdefault(key, len(numbers)))
    return np.array(place_of_zone, dtype=np.int64)
