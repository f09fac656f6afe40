"""On demand from the first tick."""

from __future__ import annotations

import numpy as np

from router.spot.policies.foresight_policies import ForesightPolicy
from router.spot.policies.our_policy import OnDemandNow, policy_for, quoted_policy_for
from router.spot.simulator.inputs import SimulationInputs, Task
from router.spot.simulator.simulation import GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import known_hazards

TASK = Task(7200, 36000, 600)


def inputs(speed: list[float], usd: list[float]) -> SimulationInputs:
    none = np.zeros(60, dtype=np.int64)
    zones = tuple(ZoneSeries(f"z{i}", "here", none, np.full(60, 1.0), price) for i, price in enumerate(usd))
    return SimulationInputs.of(TASK, Series(600, zones), [0], speed=np.array(speed))


def test_the_cheapest_that_is_in_time_runs_from_the_first_tick() -> None:
    got = simulate(inputs([1.0, 0.5, 0.1], [10.0, 3.0, 0.1]), OnDemandNow(), GuardMode.EXACT)
    assert got.on_demand_ticks.tolist() == [25]
    assert got.finish_tick.tolist() == [25]
    assert (got.launches.tolist(), got.late.tolist()) == ([1], [False])
    assert got.usd.tolist() == [25 * 3.0 / 6]


def test_our_policy_waits_for_no_spot_that_never_comes() -> None:
    like = inputs([1.0, 0.5], [10.0, 3.0])
    never, usual = (known_hazards(np.full(2, 0.1), np.full(2, back), 100.0) for back in (1e-6, 0.5))
    assert policy_for(never, like) == quoted_policy_for(never, like) == OnDemandNow()
    assert type(policy_for(usual, like)) is not OnDemandNow
    assert type(quoted_policy_for(usual, like)) is ForesightPolicy
