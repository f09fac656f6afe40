"""No window is late that on-demand from its first tick on would have finished in time, whatever the availability and
whatever the policy."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies.published.baselines import GreedySpot, TimeSliced, UniformProgress
from router.spot.simulator.inputs import SimulationInputs, Task
from router.spot.simulator.simulation import (
    IDLE,
    ON_DEMAND,
    SPOT,
    Actions,
    FullInfoPolicy,
    FullInfoSession,
    FullView,
    GuardMode,
    simulate,
)
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.adversary import Adversary
from tests.support.spot_windows import simulation_inputs


@dataclass(frozen=True)
class Erratic:
    """Anything at all, anywhere, up or not."""

    seed: int

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        rng = np.random.default_rng(self.seed)

        def play(now: FullView) -> Actions:
            count = now.kind.size
            kind = rng.choice(np.array([IDLE, SPOT, SPOT, ON_DEMAND], dtype=np.int8), count)
            zone = rng.integers(len(now.up), size=count)
            stays = rng.random(count) < 0.5
            return np.where(stays, now.kind, kind), np.where(stays, now.zone, zone)

        return play


POLICIES: list[FullInfoPolicy] = [GreedySpot(), UniformProgress(), UniformProgress(hysteresis=False), TimeSliced(4)]


@pytest.mark.parametrize("zones", [1, 3])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_policy_in_any_availability(zones: int, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(zones, windows=12))
    assert inputs.task.on_demand_is_in_time(inputs.tick_s)
    choices: list[FullInfoPolicy] = [*POLICIES, Erratic(data.draw(st.integers(0, 99)))]
    policy = data.draw(st.sampled_from(choices))
    net = data.draw(st.sampled_from([GuardMode.PUBLISHED, GuardMode.EXACT]))
    assert not simulate(inputs, policy, net).late.any()


def _named(policy: FullInfoPolicy) -> str:
    """The same in every process: functions print with their address."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(policy))


@pytest.mark.parametrize("net", [GuardMode.PUBLISHED, GuardMode.EXACT])
@pytest.mark.parametrize("patience", [1, *(pytest.param(ticks, marks=pytest.mark.slow) for ticks in (2, 7)), 3])
@pytest.mark.parametrize("policy", [*POLICIES, Erratic(5)], ids=_named)
def test_availability_that_takes_whatever_is_started(policy: FullInfoPolicy, patience: int, net: GuardMode) -> None:
    ticks, g = 30, 600
    for changeover in (0, 200, 600, 720, 1500):
        for spare in (0, 1, 600, 1300, 3000, 5000):
            work = ticks * g - changeover - spare
            up = np.ones(ticks + 1, dtype=np.int64)
            zones = tuple(ZoneSeries(name, name, up.copy(), np.ones(ticks + 1), 3.0) for name in "ab")
            inputs = SimulationInputs.of(Task(work, ticks * g, changeover), Series(g, zones), [0])
            assert not simulate(inputs, Adversary(policy, patience), net).late.any()


def test_the_exact_net_waits_as_long_as_can_be() -> None:
    """Idle until C + d is all that is left: ten ticks, three of work with a delay of half a tick."""
    zone = ZoneSeries("a", "r", np.zeros(10, dtype=np.int64), np.ones(10), 3.0)
    inputs = SimulationInputs.of(Task(3 * 60, 600, 30), Series(60, (zone,)), [0])
    found = simulate(inputs, GreedySpot(), GuardMode.EXACT)
    assert (found.on_demand_ticks[0], found.finish_tick[0]) == (4, 10)
    assert simulate(inputs, GreedySpot(), GuardMode.PUBLISHED).finish_tick[0] == 10


def test_without_a_net_a_window_may_be_late() -> None:
    zone = ZoneSeries("a", "r", np.zeros(10, dtype=np.int64), np.ones(10), 3.0)
    assert simulate(
        SimulationInputs.of(Task(3 * 60, 600, 30), Series(60, (zone,)), [0]), GreedySpot(), GuardMode.NONE
    ).late[0]
