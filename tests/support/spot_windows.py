"""One window at a time in plain Python: what router.spot.simulator.simulation does to many at once, as the rules are
written.

Also inputs drawn at random, and the cheapest of all sequences of actions, found by trying them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random

import numpy as np
from hypothesis import strategies as st

from router.spot.availability.hazard_model import CLASSES, DRIFT, HazardModel
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import GuardMode
from router.spot.simulator.traces import Floats, Series, ZoneSeries

IDLE, SPOT, DEMAND = 0, 1, 2
Action = tuple[int, int]


def series_of(inputs: SimulationInputs) -> Series:
    """The series that gives these inputs again, as many machines as gangs may have."""
    size = inputs.task.size
    places = zip(inputs.zones, inputs.regions, inputs.up, inputs.spot_usd, inputs.on_demand_usd, strict=True)
    zones = tuple(
        ZoneSeries(name, at, up.astype(int) * size, usd / size, sure / size) for name, at, up, usd, sure in places
    )
    return Series(inputs.tick_s, tuple(zones))


def known_hazards(lost_per_hour: Floats, back_per_hour: Floats, hours: float, drift: float = DRIFT) -> HazardModel:
    """The hazard model of [zone] rates, whatever the age, that are known as well as from ``hours`` of observation."""
    rate: Floats = np.stack([back_per_hour, lost_per_hour], axis=1)[:, :, None].repeat(CLASSES, axis=2)
    return HazardModel(rate * hours, np.full(rate.shape, float(hours)), drift)


@dataclass
class Window:
    """One window of simulation inputs; ``decide`` is the policy."""

    inputs: SimulationInputs
    start: int
    decide: Callable[[Window], Action]
    net: GuardMode = GuardMode.PUBLISHED
    tick: int = 0
    left: int = 0
    kind: int = IDLE
    zone: int = 0
    home: int = -1
    last: int = -1
    delay: int = 0
    usd: float = 0.0
    log: list[Action] = field(default_factory=list)

    def up(self, zone: int) -> bool:
        return bool(self.inputs.up[zone, self.start + self.tick])

    def price(self, zone: int) -> float:
        return float(self.inputs.spot_usd[zone, self.start + self.tick])

    @property
    def passed(self) -> int:
        return self.tick * self.inputs.tick_s

    @property
    def worst(self) -> int:
        return self.inputs.task.changeover_s + int(self.inputs.ways.transfer_s.max())

    def play(self) -> float:
        """Dollars until the work is done; it is late where ``tick`` is then beyond the window's."""
        self.left = self.inputs.task.work_s
        while self.left > 0:
            late = self.tick >= self.inputs.ticks
            if not late and self.kind == SPOT and not self.up(self.zone):
                self.kind = IDLE
            self._carry_out(*((DEMAND, self._demand_zone()) if late else self._safe(*self.decide(self))))
        return self.usd

    def _safe(self, kind: int, zone: int) -> Action:
        if kind == SPOT and not self.up(zone):
            kind = IDLE
        g, rest = self.inputs.tick_s, self.inputs.ticks - self.tick
        one, two = ceil((self.left + self.worst) / g), ceil((self.left + 2 * self.worst) / g)
        forced = False
        if self.net is GuardMode.PUBLISHED:
            if self.kind == SPOT and self.delay == 0:
                if one >= rest:
                    kind, zone = SPOT, self.zone
            else:
                forced = one >= rest or (self.kind != SPOT and two >= rest)
        elif self.net is GuardMode.EXACT and kind != DEMAND:
            same = kind == SPOT and self.kind == SPOT and zone == self.zone
            does = 0 if kind == IDLE else max(0, g - (self.delay if same else self.worst))
            forced = self._too_late_after(does)
            if forced and self.kind == SPOT and not self._too_late_after(max(0, g - self.delay)):
                return SPOT, self.zone
        moves = self.kind == DEMAND and kind == DEMAND and zone != self.zone
        if (forced and kind != DEMAND) or (moves and self.net is not GuardMode.NONE and one > rest):
            return DEMAND, self._demand_zone()
        return kind, zone

    def _too_late_after(self, does: int) -> bool:
        """Whether a tick that does so many seconds of work may leave too little time."""
        after = self.inputs.ticks - self.tick - 1
        return self.left > does and ceil((self.left - does + self.worst) / self.inputs.tick_s) > after

    def _demand_zone(self) -> int:
        if self.kind == DEMAND:
            return self.zone
        rates = self.inputs.on_demand_usd
        egress = self.inputs.ways.egress_usd
        costs = [
            self.left / 3600 * float(rate) + (0.0 if self.home < 0 else float(egress[self.home, z]))
            for z, rate in enumerate(rates)
        ]
        best = costs.index(min(costs))
        return self.home if self.home >= 0 and costs[self.home] <= costs[best] else best

    def _carry_out(self, kind: int, zone: int) -> None:
        g = self.inputs.tick_s
        self.log.append((kind, zone if kind else 0))
        if kind != IDLE and (kind != self.kind or zone != self.zone):
            self.delay = self.inputs.task.changeover_s
            if self.home >= 0 and self.tick < self.inputs.ticks:
                self.delay += int(self.inputs.ways.transfer_s[self.home, zone])
                self.usd += float(self.inputs.ways.egress_usd[self.home, zone])
        self.kind = kind
        if kind != IDLE:
            rate = self.price(zone) if kind == SPOT else float(self.inputs.on_demand_usd[zone])
            self.usd += rate * g / 3600
            self.left -= max(0, g - self.delay)
            self.delay = max(0, self.delay - g)
            self.zone = self.last = zone
            if self.delay == 0:
                self.home = zone
        self.tick += 1


def greedy(w: Window) -> Action:
    """Keeps a live instance; else the cheapest that is up."""
    if w.kind == SPOT:
        return SPOT, w.zone
    zones = [z for z in range(len(w.inputs.up)) if w.up(z)]
    return (SPOT, min(zones, key=w.price)) if zones else (IDLE, 0)


def elsewhere(w: Window) -> Action:
    """As greedy, but the region where it last ran is the last choice."""
    if w.kind == SPOT:
        return SPOT, w.zone
    regions = w.inputs.regions
    zones = [z for z in range(len(w.inputs.up)) if w.up(z)]
    was = regions[w.last] if w.last >= 0 else None
    return (SPOT, min(zones, key=lambda z: (regions[z] == was, w.price(z)))) if zones else (IDLE, 0)


def uniform(w: Window, hysteresis: bool, spot: Callable[[Window], Action]) -> Action:
    """cp < ep without spot: on demand."""
    task, action = w.inputs.task, spot(w)
    done, rate = task.work_s - w.left, task.work_s / task.deadline_s
    if action[0] == IDLE and (w.kind == DEMAND or done < w.passed * rate - 1e-6):
        return DEMAND, w._demand_zone()
    if hysteresis and w.kind == DEMAND and not done > (w.passed + 2 * task.changeover_s) * rate + 1e-6:
        return DEMAND, w.zone
    return action


def sliced(w: Window, n: int) -> Action:
    """A net of its own in each slice."""
    task, g, action = w.inputs.task, w.inputs.tick_s, greedy(w)
    part = 1
    while part < n and w.passed >= part * task.deadline_s / n:
        part += 1
    need = part * task.work_s / n - (task.work_s - w.left)
    after = part * task.deadline_s / n - w.passed - g
    if need <= 1e-6:
        return action
    delays = 1 if w.kind == SPOT else 2
    riding = w.kind == SPOT and w.delay == 0
    net = not riding and need + delays * w.worst > after + 1e-6
    if net or (w.kind == DEMAND and action[0] == IDLE):
        return DEMAND, w._demand_zone()
    return action


@st.composite
def simulation_inputs(
    draw: st.DrawFn, zones: int = 1, windows: int = 6, most: int = 40, feasible: bool = True
) -> SimulationInputs:
    """Scenes of any availability, price, size; moves cost something where there are several zones."""
    rng = Random(draw(st.integers(0, 2**32)))
    g = draw(st.sampled_from((10, 13, 60, 600)))
    d = draw(st.sampled_from((0, g // 3, g, g + g // 5, 2 * g + 1)))
    ticks = draw(st.integers(2, most))
    spare = draw(st.sampled_from((0, g, 2 * d, 4 * d + 3 * g, ticks * g // 2)))
    work = max(1, ticks * g - (d if feasible else 0) - spare - rng.randrange(g))
    deadline = max(ticks, -(-(work + d) // g) if feasible else 0) * g + rng.randrange(g)
    length = deadline // g + rng.randrange(2 * most)
    made = tuple(_zone(rng, z, length) for z in range(zones))
    if rng.random() < 0.5:
        rate = made[0].on_demand_usd_per_hour
        made = tuple(ZoneSeries(z.zone, z.region, z.counts, z.spot_usd_per_hour, rate) for z in made)
    series = Series(g, made)
    usd, seconds = rng.choice((0.0, 0.01, 1.0)), rng.choice((0, 0, g // 2))
    ways = ZoneMoveCosts.between(series.regions, lambda a, b: usd, seconds)
    task = Task(work, deadline, d, rng.choice((1, 1, 2)))
    starts = [rng.randrange(length - task.ticks(g) + 1) for _ in range(windows)]
    return SimulationInputs.of(task, series, starts, ways)


def _zone(rng: Random, number: int, length: int) -> ZoneSeries:
    stays, counts, now = rng.choice((0.2, 0.5, 0.8, 0.95)), [], rng.choice((0, 3))
    for _ in range(length):
        now = now if rng.random() < stays else rng.choice((0, 1, 3))
        counts.append(now)
    prices = [rng.uniform(0.5, 1.5) * rng.choice((1, 1, 4)) for _ in range(length)]
    return ZoneSeries(f"z{number}", f"r{number % 2}", np.array(counts), np.array(prices), rng.uniform(2, 4))


def cheapest_of_all(inputs: SimulationInputs, start: int) -> float:
    """The least dollars of any sequence of actions that is in time, by trying them; few ticks and zones only."""

    def on(w: Window) -> float:
        if w.left <= 0:
            return w.usd
        if w.tick >= inputs.ticks:
            return inf
        zones = range(len(inputs.up))
        actions = [(IDLE, 0), *((DEMAND, z) for z in zones), *((SPOT, z) for z in zones if w.up(z))]
        return min(on(_after(w, action)) for action in actions)

    window = Window(inputs, start, greedy, GuardMode.NONE)
    window.left = inputs.task.work_s
    return on(window)


def _after(w: Window, action: Action) -> Window:
    fields = ("tick", "left", "kind", "zone", "home", "last", "delay", "usd")
    then = Window(w.inputs, w.start, w.decide, w.net, **{name: getattr(w, name) for name in fields})
    if then.kind == SPOT and not then.up(then.zone):
        then.kind = IDLE
    then._carry_out(*action)
    return then
