"""Play one window in plain Python, zones answering only when asked, as an oracle for the simulator of many windows.

The other one is :mod:`router.spot.simulator.blind_simulator`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

from router.spot.simulator.blind_simulator import ProbeFees
from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import GuardMode

IDLE, SPOT, DEMAND = 0, 1, 2


@dataclass
class Steps:
    """A tick: spot is tried in these zones; else on demand there; stop first."""

    tries: list[int] = field(default_factory=list)
    demand: int | None = None
    leave: bool = False


class Rule:
    """A policy for one window; it hears of each answer when it comes."""

    def act(self, _: Asked) -> Steps:
        return Steps()

    def look(self, _: Asked) -> Iterable[int]:
        return ()

    def probed(self, _: int, __: bool) -> None:
        return None

    def tried(self, _: Asked, __: int, ___: bool) -> None:
        return None


@dataclass
class Asked:
    inputs: SimulationInputs
    start: int
    rule: Rule
    guard: GuardMode = GuardMode.PUBLISHED
    fees: ProbeFees = field(default_factory=ProbeFees)
    tick: int = 0
    left: int = 0
    kind: int = IDLE
    zone: int = 0
    lost: bool = False
    home: int | None = None
    delay: int = 0
    usd: float = 0.0
    probe_usd: float = 0.0
    launches: int = 0
    counts: dict[int, int] = field(default_factory=lambda: {IDLE: 0, SPOT: 0, DEMAND: 0})

    def price(self, zone: int) -> float:
        return float(self.inputs.spot_usd[zone, self.start + self.tick])

    def up(self, zone: int) -> bool:
        return bool(self.inputs.up[zone, self.start + self.tick])

    @property
    def zones(self) -> range:
        return range(len(self.inputs.up))

    @property
    def worst(self) -> int:
        return self.inputs.task.changeover_s + self.inputs.ways.longest_s

    def play(self) -> float:
        self.left = self.inputs.task.work_s
        g, latched = self.inputs.tick_s, False
        while self.left > 0:
            late = self.tick >= self.inputs.ticks
            self.lost = not late and self.kind == SPOT and not self.up(self.zone)
            if self.lost:
                self.kind = IDLE
            rest = self.inputs.ticks - self.tick
            if self.guard is GuardMode.PUBLISHED and ceil((self.left + self.worst) / g) >= rest:
                latched = True
            if latched or late:
                if self.kind != DEMAND:
                    self._launch(DEMAND, self.zone if self.kind == SPOT else self.cheapest())
            else:
                self._act(rest)
            self._work()
        return self.usd

    def cheapest(self) -> int:
        def cost(z: int) -> float:
            egress = 0.0 if self.home is None else float(self.inputs.ways.egress_usd[self.home, z])
            return self.left / 3600 * float(self.inputs.on_demand_usd[z]) + egress

        return self.zone if self.kind == DEMAND else min(self.zones, key=cost)

    def _act(self, rest: int) -> None:
        steps = self.rule.act(self)
        if self.guard is GuardMode.EXACT:
            steps = self._exact(steps, rest)
        before, stopped = self.kind, steps.leave
        if stopped:
            self.kind = IDLE
        launched = False
        for zone in steps.tries:
            launched = self.up(zone)
            self.rule.tried(self, zone, launched)
            if launched:
                if not (before == SPOT and self.zone == zone and not stopped):
                    self._launch(SPOT, zone)
                break
        if not launched and steps.demand is not None and not (self.kind == DEMAND and self.zone == steps.demand):
            self._launch(DEMAND, steps.demand)
        for zone in self.rule.look(self):
            if self.kind == SPOT and zone == self.zone:
                continue
            seconds = self.fees.up_s if self.up(zone) else self.fees.down_s
            self.usd += seconds * self.price(zone) / 3600
            self.probe_usd += seconds * self.price(zone) / 3600
            self.rule.probed(zone, self.up(zone))

    def _exact(self, steps: Steps, rest: int) -> Steps:
        """Only what leaves time for work and the longest launch after this tick, or is done in it."""
        g = self.inputs.tick_s

        def fits(delay: int | None) -> bool:
            does = 0 if delay is None else max(0, g - delay)
            return does >= self.left or ceil((self.left - does + self.worst) / g) <= rest - 1

        if self.kind == DEMAND and ceil((self.left + self.worst) / g) > rest:
            steps = Steps(steps.tries, None if steps.demand != self.zone else self.zone, False)
        stays = self.kind == DEMAND or (self.kind == SPOT and fits(self.delay))
        own = self.kind == SPOT and not steps.leave
        tries = [z for z in steps.tries if fits(self.worst) or (own and z == self.zone and stays)]
        waits = stays if self.kind != IDLE and not steps.leave else fits(None)
        demand = self.cheapest() if steps.demand is None and not waits else steps.demand
        return Steps(tries, demand, steps.leave)

    def _launch(self, kind: int, zone: int) -> None:
        self.delay = self.inputs.task.changeover_s
        if self.home is not None:
            self.delay += int(self.inputs.ways.transfer_s[self.home, zone])
            self.usd += float(self.inputs.ways.egress_usd[self.home, zone])
        self.kind, self.zone = kind, zone
        self.launches += 1

    def _work(self) -> None:
        g = self.inputs.tick_s
        self.counts[self.kind] += 1
        if self.kind != IDLE:
            rate = self.price(self.zone) if self.kind == SPOT else float(self.inputs.on_demand_usd[self.zone])
            self.usd += rate * g / 3600
            self.left -= max(0, g - self.delay)
            self.delay = max(0, self.delay - g)
            self.home = self.zone
        self.tick += 1
