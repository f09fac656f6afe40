"""Forecasts: what a policy makes of availability of an outlook."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.spot.availability.hazard_model import HazardModel, ZoneStates, simulate_windows
from router.spot.policies.published.baselines import GreedySpot, UniformProgress
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import GuardMode, WindowOutcomes, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import known_hazards

TICK_S = 600
TASK = Task(10 * HOUR_S, 15 * HOUR_S, 720, size=2)


def like(zones: int = 2) -> SimulationInputs:
    ticks = TASK.ticks(TICK_S)
    prices = np.linspace(5.0, 1.0, ticks)
    made = tuple(
        ZoneSeries(f"z{i}", f"r{i}", np.zeros(ticks, dtype=np.int64), prices + i, 4.0 + i) for i in range(zones)
    )
    return SimulationInputs.of(
        TASK, Series(TICK_S, made), [0], ZoneMoveCosts.between(["r0", "r1"][:zones], lambda a, b: 0.5)
    )


def rates(lost: float, back: float, hours: float = 40.0, drift: float = 0.5, zones: int = 2) -> HazardModel:
    return known_hazards(np.full(zones, lost), np.full(zones, back), hours, drift)


def found(outlook: HazardModel, seed: int = 1, draws: int = 400, state: ZoneStates | None = None) -> WindowOutcomes:
    windows = simulate_windows(outlook, state, like(outlook.zones), draws, np.random.default_rng(seed))
    return simulate(windows, UniformProgress(False), GuardMode.EXACT)


def test_the_same_seed_gives_the_same() -> None:
    one, two, other = found(rates(0.3, 0.3)), found(rates(0.3, 0.3)), found(rates(0.3, 0.3), seed=2)
    assert (one.usd == two.usd).all()
    assert (one.finish_tick == two.finish_tick).all()
    assert (one.usd != other.usd).any()


def test_where_spot_is_sure_all_draws_are_one() -> None:
    state = ZoneStates(np.array([True, True]), np.array([3.0, 3.0]))
    sure = found(rates(0.0, 1e9), state=state)
    ticks = -(-(TASK.work_s + TASK.changeover_s) // TICK_S)
    assert sure.usd == pytest.approx(ticks / 6 * 2 * 1.0)  # the last price, of two machines
    assert np.ptp(sure.usd) == 0
    assert (sure.finish_tick == ticks).all()
    assert not sure.late.any()
    assert (sure.spot_ticks == ticks).all()
    assert (sure.launches == 1).all()
    assert not sure.on_demand_ticks.any()
    assert not sure.egress_usd.any()


def test_more_drift_and_fewer_hours_are_wider() -> None:
    def width(outlook: HazardModel) -> float:
        low, high = np.quantile(found(outlook, draws=2000).usd, [0.1, 0.9])
        return float(high - low)

    base = width(rates(2.0, 2.0, hours=1e4, drift=0.1, zones=1))
    assert width(rates(2.0, 2.0, hours=1e4, drift=1.0, zones=1)) > 1.3 * base
    assert width(rates(2.0, 2.0, hours=1, drift=0.1, zones=1)) > 1.3 * base


def test_without_a_sky_availability_is_usual_at_first_and_later() -> None:
    outlook = rates(0.25, 0.75, hours=1e6, drift=0.0)
    inputs = simulate_windows(outlook, None, like(), 3000, np.random.default_rng(4))
    swung = 0.714  # the mean of 1 / (1 + exp(2 a) / 3) over the scarcities a
    length = inputs.up.shape[1] // 3000
    by_tick = inputs.up.reshape(2, 3000, length)
    assert by_tick[:, :, 0].mean() == pytest.approx(swung, abs=0.02)
    assert by_tick[:, :, -1].mean() == pytest.approx(swung, abs=0.02)
    assert (np.diff(inputs.starts) == length).all()


def test_zones_of_a_region_go_together_and_those_of_two_do_not() -> None:
    outlook, usual = rates(0.5, 0.5, hours=1e6, drift=0.0), like()
    one = replace(usual, regions=("r", "r"))
    together = []
    for inputs in (one, usual):
        made = simulate_windows(outlook, None, inputs, 4000, np.random.default_rng(4))
        last = made.up.reshape(2, 4000, -1)[:, :, -1]
        together.append(float(np.mean(last[0] == last[1])))
    assert together[0] > 0.53
    assert together[1] == pytest.approx(0.5, abs=0.02)


def test_the_exact_net_meets_the_deadline_and_none_does_not() -> None:
    assert not found(rates(1.0, 0.1)).late.any()
    windows = simulate_windows(rates(1.0, 0.01), None, like(), 50, np.random.default_rng(1))
    bare = simulate(windows, GreedySpot(), GuardMode.NONE)
    assert bare.late.mean() > 0.5
    assert (bare.finish_tick[bare.late] * TICK_S > TASK.deadline_s).all()
    assert bare.egress_usd.shape == (50,)


def test_other_zones_are_refused() -> None:
    with pytest.raises(ValueError, match="the 2 zones"):
        simulate_windows(rates(1.0, 1.0, zones=3), None, like(), 5, np.random.default_rng(1))
    state = ZoneStates(np.ones(3, dtype=bool), np.ones(3))
    with pytest.raises(ValueError, match="the 2 zones"):
        simulate_windows(rates(1.0, 1.0), state, like(), 5, np.random.default_rng(1))
