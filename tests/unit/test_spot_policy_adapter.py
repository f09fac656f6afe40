"""What steers one job decides as it does in the back-test; what it is told, keeps, and leaves to others.

A window is played through the interface of the watcher. What an explorer decides there must be what it decides in
router.spot.simulator.blind_simulator. Tries take no time, as there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.policies.foresight_policies import BlindForesightPolicy
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
from router.spot.policies.published.baselines import (
    CheapestSpot,
    OptimisticAdapter,
    PresentPolicy,
    TimeSliced,
    UniformProgress,
)
from router.spot.policies.published.baselines import GreedySpot as SpotOrWait
from router.spot.policies.published.moves import CheapestWithMoves, Lindy
from router.spot.policies.published.skynomad import HourValue, SkyNomad
from router.spot.policies.published.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.policies.registry import LivePolicy
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.blind_simulator import ProbeFees, simulate_blind
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.asked_rules import Dice
from tests.support.spot_windows import known_hazards, series_of, simulation_inputs

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


ALL: dict[str, BlindPolicy] = {
    "cheapest": CheapestSpot(), "UP(S)": FailoverProgress(), "UP(A)": RateProgress(3600),
    "UP(AP)": RatePerUsdProgress(600), "moves": CheapestWithMoves(), "lindy": Lindy(),
    "SkyNomad": SkyNomad(checkpoint_gb=1.0), "SkyNomad v100": SkyNomad.v100(),
    "SkyNomad barrier": SkyNomad(HourValue.BARRIER, gated=False), "dice 7": Dice(7), "dice 8": Dice(8),
    "UP": OptimisticAdapter(UniformProgress()), "wait": OptimisticAdapter(SpotOrWait(), 2),
    "sliced": OptimisticAdapter(TimeSliced(3)),
}  # fmt: skip
LONG = {"UP(A)", "UP(AP)", "lindy", "SkyNomad v100", "SkyNomad", "moves"}  # seconds each
FREE: dict[str, PresentPolicy] = {
    "wait": SpotOrWait(),
    "UP": UniformProgress(),
    "UP plain": UniformProgress(False),
    "sliced": TimeSliced(3),
}


def _foreseen(inputs: SimulationInputs) -> BlindPolicy:
    """Fitted to the inputs' market, to availability that its own is not, so that it is wrong now and then."""
    zones = np.ones(len(inputs.up))
    outlook = known_hazards(zones * 0.5, zones, 20.0)
    return BlindForesightPolicy.fitted(outlook, inputs.spec, inputs.spot_usd.mean(axis=1))


@pytest.mark.parametrize("name", [name for name in ALL if name not in LONG])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_watcher_decides_as_the_back_test_does(name: str, data: st.DataObject) -> None:
    _decides_alike(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_watcher_decides_as_the_back_test_does_in_more_scenes(name: str, data: st.DataObject) -> None:
    _decides_alike(name, data)


def _decides_alike(name: str, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=1))
    if name == "sliced":  # reckons with the longest way from the start; a job that has saved nothing has none to know
        inputs = SimulationInputs.of(inputs.task, series_of(inputs), inputs.starts)
    _same_in_both(in_money(inputs), ALL[name])


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(simulation_inputs(2, windows=1))
def test_foresight_decides_as_in_the_back_test(inputs: SimulationInputs) -> None:
    inputs = in_money(inputs)
    _same_in_both(inputs, _foreseen(inputs))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_and_so_it_does_in_more_scenes(data: st.DataObject) -> None:
    inputs = in_money(data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=1)))
    _same_in_both(inputs, _foreseen(inputs))


def _same_in_both(inputs: SimulationInputs, explorer: BlindPolicy) -> None:
    bill = simulate_blind(inputs, explorer, GuardMode.NONE, ProbeFees(60, 0))
    game = Steer(inputs, PolicyAdapter(LivePolicy(lambda *_: explorer)))
    usd = game.play()
    if bill.late[0]:  # what comes after the deadline is not a policy's
        assert game.left > 0
        return
    assert usd == pytest.approx(bill.usd[0]), game.log
    assert (game.tick, game.launches, game.probes) == (bill.finish_tick[0], bill.launches[0], bill.probes[0])


@pytest.mark.parametrize("rule", FREE)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_who_believes_until_it_hears_no_does_as_who_sees_all(rule: str, data: st.DataObject) -> None:
    """The same but for where the checkpoint is said to be, which is told apart in moves that cost something."""
    policy = FREE[rule]
    inputs = data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=4))
    inputs = SimulationInputs.of(inputs.task, series_of(inputs), inputs.starts)
    seen, asked = (
        simulate(inputs, policy, GuardMode.NONE),
        simulate_blind(inputs, OptimisticAdapter(policy), GuardMode.NONE),
    )
    done = ~seen.late
    np.testing.assert_array_equal(asked.late, seen.late)
    for name in ("finish_tick", "spot_ticks", "on_demand_ticks", "launches"):
        np.testing.assert_array_equal(getattr(asked, name)[done], getattr(seen, name)[done])
    np.testing.assert_allclose(asked.usd[done], seen.usd[done])
