"""One window of simulation inputs, played through the interface of the watcher.

What an explorer decides there must be what it decides in router.spot.simulator.blind_simulator. Tries take no time, as
there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite

import numpy as np

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.policies.interface import (
    AvailabilityAnswer,
    CurrentPlacement,
    MoveDecision,
    Observation,
    PastAttempt,
    PlacementOption,
    Policy,
    PolicyEvent,
    ProbeDecision,
)
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import series_of

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
IDLE, SPOT, DEMAND = 0, 1, 2
PROBE_S = 60


def in_money(inputs: SimulationInputs) -> SimulationInputs:
    """The same at prices of whole hundredths of a cent, all of its windows one that begins with the series."""

    def zone(z: ZoneSeries) -> ZoneSeries:
        return replace(
            z,
            spot_usd_per_hour=np.round(z.spot_usd_per_hour, 4),
            on_demand_usd_per_hour=round(z.on_demand_usd_per_hour, 4),
        )

    series = Series(inputs.tick_s, tuple(zone(z) for z in series_of(inputs).zones))
    return SimulationInputs.of(inputs.task, series, [0], inputs.ways)


@dataclass
class Steer:
    """One run; ``play`` gives dollars. No net: what is not done at the deadline goes on on demand where it is."""

    inputs: SimulationInputs
    policy: Policy
    tick: int = 0
    left: int = 0
    kind: int = IDLE
    zone: int = 0
    home: int = -1
    delay: int = 0
    usd: float = 0.0
    launches: int = 0
    probes: int = 0
    lives: list[PastAttempt] = field(default_factory=list)
    answers: list[AvailabilityAnswer] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    spot: dict[int, list[tuple[datetime, UsdPerHour]]] = field(default_factory=dict)

    def play(self) -> float:
        """Until all is done, or the deadline is there."""
        self.left = self.inputs.task.work_s
        while self.left > 0 and self.tick < self.inputs.ticks:
            lost = self.kind == SPOT and not self.inputs.up[self.zone, self.tick]
            if lost:
                self._end(taken=True)
            decision = self.policy.decide(self._seen(PolicyEvent.LOST if lost else PolicyEvent.TICK))
            self.log.append(f"{self.tick} {decision}")
            if isinstance(decision, MoveDecision):
                self._move(decision)
            after = self.policy.decide(self._seen(PolicyEvent.LAUNCHED))
            if isinstance(after, ProbeDecision):
                self._probe(after)
            self._work()
        return self.usd

    @property
    def now(self) -> datetime:
        """The start of the tick."""
        return BEGIN + timedelta(seconds=self.tick * self.inputs.tick_s)

    def _seen(self, event: PolicyEvent) -> Observation:
        kept = [replace(life, share_to=self.left / self._work_s) if life.until is None else life for life in self.lives]
        here = None
        if self.kind != IDLE:
            here = CurrentPlacement(self._place(f"{self.zone} {'spot' if self.kind == SPOT else 'demand'}"), saved=True)
        zones = range(len(self.inputs.up))
        keys = [f"{z} spot" for z in zones]
        keys += [f"{z} demand" for z in zones if isfinite(self.inputs.on_demand_usd[z])]
        return Observation(
            now=self.now,
            deadline=BEGIN + timedelta(seconds=self.inputs.task.deadline_s),
            tick=timedelta(seconds=self.inputs.tick_s),
            event=event,
            here=here,
            places=tuple(self._place(key) for key in keys),
            began=BEGIN,
            share=self.left / self._work_s,
            lives=tuple(kept),
            answers=tuple(self.answers),
        )

    @property
    def _work_s(self) -> int:
        return self.inputs.task.work_s

    def _place(self, key: str) -> PlacementOption:
        number, market = key.split()
        z, inputs = int(number), self.inputs
        usd = seconds = 0.0
        if self.home >= 0:
            usd, seconds = float(inputs.ways.egress_usd[self.home, z]), float(inputs.ways.transfer_s[self.home, z])
        g = timedelta(seconds=inputs.tick_s)
        size = inputs.task.size
        if z not in self.spot:
            prices = (inputs.spot_usd[z] / inputs.task.size).tolist()
            self.spot[z] = [(BEGIN + t * g, UsdPerHour.parse(f"{size * usd:.4f}")) for t, usd in enumerate(prices)]
        earlier = tuple(self.spot[z][: self.tick]) if market == "spot" else ()
        if market == "spot":
            price = self.spot[z][self.tick][1]
        else:
            price = UsdPerHour.parse(f"{float(inputs.on_demand_usd[z]):.4f}")
        hours = self.left / HOUR_S
        return PlacementOption(
            key=key,
            market=Market.SPOT if market == "spot" else Market.ON_DEMAND,
            usd_per_hour=price,
            hours=hours,
            startup_hours=inputs.task.changeover_s / HOUR_S,
            expected_usd=Usd(round(hours * price.nanos)),
            transfer_hours=seconds / HOUR_S,
            moves_usd=Usd.parse(f"{usd:.4f}"),
            site=number,
            region=inputs.regions[z],
            usd_since=self.now,
            earlier_usd=earlier,
        )

    def _move(self, decision: MoveDecision) -> None:
        was = (self.kind, self.zone)
        if not decision.keep:
            self._end()
        for key in decision.to:
            number, market = key.split()
            z = int(number)
            up = market == "demand" or bool(self.inputs.up[z, self.tick])
            if market == "spot":
                self.answers.append(AvailabilityAnswer(key, self.now, up))
            if up:
                kind = SPOT if market == "spot" else DEMAND
                assert not (decision.keep and was == (kind, z))
                self._end()
                self._launch(kind, z)
                return

    def _end(self, *, taken: bool = False) -> None:
        if self.kind != IDLE:
            self.lives[-1] = replace(self.lives[-1], until=self.now, taken=taken, share_to=self.left / self._work_s)
        self.kind = IDLE

    def _launch(self, kind: int, zone: int) -> None:
        self.kind, self.zone, self.delay = kind, zone, self.inputs.task.changeover_s
        self.launches += 1
        if self.home >= 0:
            self.delay += int(self.inputs.ways.transfer_s[self.home, zone])
            self.usd += float(self.inputs.ways.egress_usd[self.home, zone])
        share = self.left / self._work_s
        ready = self.now + timedelta(seconds=self.delay)
        self.lives.append(
            PastAttempt(f"{zone} {'spot' if kind == SPOT else 'demand'}", self.now, ready, None, False, share, share)
        )

    def _probe(self, probe: ProbeDecision) -> None:
        for key in probe.keys:
            z = int(key.split()[0])
            if self.kind == SPOT and z == self.zone:
                continue
            up = bool(self.inputs.up[z, self.tick])
            self.answers.append(AvailabilityAnswer(key, self.now, up, launch=False))
            self.probes += 1
            self.usd += up * PROBE_S * float(self.inputs.spot_usd[z, self.tick]) / HOUR_S

    def _work(self) -> None:
        g = self.inputs.tick_s
        if self.kind != IDLE:
            spot = self.kind == SPOT
            rate = self.inputs.spot_usd[self.zone, self.tick] if spot else self.inputs.on_demand_usd[self.zone]
            self.usd += float(rate) * g / HOUR_S
            passed = min(self.delay, g)
            self.left = max(0, self.left - g + passed)
            self.delay -= passed
            self.home = self.zone
        self.tick += 1
