"""Foresight in the exact net and guard: no deadline is missed that on-demand from the beginning would have met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.availability.hazard_model import HazardModel
from router.spot.policies import action_values
from router.spot.policies.foresight import ForesightModel
from router.spot.policies.foresight_policies import BlindForesightPolicy, ForesightPolicy, choose_clock_s
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMarket, ZoneMoveCosts
from router.spot.simulator.simulation import GuardMode, simulate
from router.spot.simulator.traces import Floats, Ints, Series, ZoneSeries
from tests.support.adversary import Adversary, AskedAdversary
from tests.support.spot_windows import series_of, simulation_inputs

DRAWS = 12


@pytest.fixture(autouse=True, scope="module")
def _few_fits() -> Iterator[None]:
    """Prices here are random at each tick: it needs not be fitted to each of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_values, "MOST", 3)
        yield


def mind(inputs: SimulationInputs) -> ForesightModel:
    """Of few draws: it may be as wrong as it likes."""
    outlook = HazardModel.of(series_of(inputs), inputs.task.size)
    launch = (inputs.task.changeover_s + inputs.launch_s).astype(np.float64)
    market = ZoneMarket(inputs.spot_usd[:, 0], inputs.on_demand_usd, inputs.speed, launch, inputs.ways)
    deadline_s = inputs.ticks * inputs.tick_s
    return ForesightModel.of(
        outlook, market, inputs.task.work_s, deadline_s, clock_s=choose_clock_s(inputs.tick_s), draws=DRAWS
    )


def uneven(inputs: SimulationInputs, seed: int) -> SimulationInputs:
    """The same with speeds, launches, and zones without on-demand; all but the first."""
    rng, zones = Random(seed), list(series_of(inputs).zones)
    speed: Floats = np.array([1.0] + [rng.choice((0.21, 0.5, 1.0, 1.4)) for _ in zones[1:]])
    launch_s: Ints = np.array([0] + [rng.choice((0, 7, inputs.tick_s, 1300)) for _ in zones[1:]])
    for i in range(1, len(zones)):
        if rng.random() < 0.3:
            zones[i] = replace(zones[i], on_demand_usd_per_hour=np.inf)
    return SimulationInputs.of(
        inputs.task, Series(inputs.tick_s, tuple(zones)), inputs.starts, inputs.ways, speed, launch_s
    )


@pytest.mark.slow
@pytest.mark.parametrize("zones", [1, 3])
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_in_any_availability_at_any_speeds(zones: int, data: st.DataObject, seed: int) -> None:
    """Ticks of ten seconds to ten minutes: windows shorter than a tick of the clock, and of many."""
    inputs = data.draw(simulation_inputs(zones, windows=8))
    assert not simulate(inputs, ForesightPolicy(mind(inputs)), GuardMode.EXACT).late.any()
    assert not simulate_blind(inputs, BlindForesightPolicy(mind(inputs)), GuardMode.EXACT).late.any()
    inputs = uneven(inputs, seed)
    found = simulate(inputs, ForesightPolicy(mind(inputs)), GuardMode.EXACT)
    assert not found.late.any()
    assert np.isfinite(found.usd).all()


@pytest.mark.parametrize("patience", [1, 2, 5])
@pytest.mark.parametrize("g", [600, 3600])
def test_availability_that_takes_whatever_is_started(g: int, patience: int) -> None:
    ticks = 18
    for changeover in (0, g + 120, 2 * g + 300):
        for spare in (0, 1, 2 * g + 100, 5 * g):
            up = np.ones(ticks + 1, dtype=np.int64)
            zones = tuple(ZoneSeries(name, name, up.copy(), np.ones(ticks + 1), 3.0) for name in "ab")
            task = Task(ticks * g - changeover - spare, ticks * g, changeover)
            ways = ZoneMoveCosts.between(["a", "b"], lambda _a, _b: 0.1) if spare else ZoneMoveCosts.free(2)
            inputs = SimulationInputs.of(task, Series(g, zones), [0], ways)
            policy = mind(inputs)
            assert not simulate(inputs, Adversary(ForesightPolicy(policy), patience), GuardMode.EXACT).late.any()
            asked = AskedAdversary(BlindForesightPolicy(policy), inputs, patience)
            assert not simulate_blind(inputs, asked, GuardMode.EXACT).late.any()


def test_a_deadline_within_one_tick_of_the_clock_and_no_slack() -> None:
    zone = ZoneSeries("a", "r", np.ones(10, dtype=np.int64), np.ones(10), 3.0)
    for changeover in (0, 60):
        inputs = SimulationInputs.of(Task(600 - changeover, 600, changeover), Series(60, (zone,)), [0])
        assert not simulate(inputs, ForesightPolicy(mind(inputs)), GuardMode.EXACT).late.any()
        terms = inputs.spec
        asking = BlindForesightPolicy.fitted(HazardModel.of(series_of(inputs)), terms, inputs.spot_usd[:, 0])
        assert not simulate_blind(inputs, asking, GuardMode.EXACT).late.any()
