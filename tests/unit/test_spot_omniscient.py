"""The bound is what trying everything finds, and no policy is below it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies import omniscient
from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.published.baselines import GreedySpot, TimeSliced, UniformProgress, rank_by_price_elsewhere
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import cheapest_of_all, simulation_inputs

SINGLE = 1e-5  # of single precision, over some hundred ticks


@settings(max_examples=120, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize(("zones", "most"), [(1, 7), (2, 5), (3, 4)])
def test_it_is_the_cheapest_of_all_sequences(zones: int, most: int, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(zones, windows=2, most=most, feasible=data.draw(st.booleans())))
    whole = not (inputs.ways.transfer_s % np.gcd(inputs.tick_s, inputs.task.changeover_s)).any()
    for found, start in zip(compute_least_usd(inputs, np.float64), inputs.starts.tolist(), strict=True):
        best = cheapest_of_all(inputs, start)
        if whole:
            assert found == pytest.approx(best)
        else:
            assert found <= best * (1 + 1e-9)


@pytest.mark.parametrize("zones", [1, 4])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_policy_is_cheaper(zones: int, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(zones))
    least = compute_least_usd(inputs)
    for policy in (GreedySpot(), UniformProgress(), UniformProgress(ranking=rank_by_price_elsewhere), TimeSliced(3)):
        for net in (GuardMode.PUBLISHED, GuardMode.EXACT):
            assert (least <= simulate(inputs, policy, net).usd * (1 + SINGLE)).all()


def test_many_windows_are_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    zone = ZoneSeries("a", "r", rng.integers(0, 2, 60), rng.uniform(0.5, 1, 60), 3.0)
    inputs = SimulationInputs.of(Task(1000, 1500, 45), Series(60, (zone,)), np.arange(35))
    whole = compute_least_usd(inputs)
    monkeypatch.setattr(omniscient, "_MOST_VALUES", 3000)
    assert np.array_equal(compute_least_usd(inputs), whole)


def test_what_cannot_be_done_has_no_least() -> None:
    zone = ZoneSeries("a", "r", np.zeros(3, dtype=np.int64), np.ones(3), 3.0)
    assert np.isinf(compute_least_usd(SimulationInputs.of(Task(180, 180, 30), Series(60, (zone,)), [0]))[0])
    assert np.isinf(compute_least_usd(SimulationInputs.of(Task(181, 180, 0), Series(60, (zone,)), [0]))[0])


def test_it_leaves_dear_spot_for_cheap_on_demand_and_comes_back() -> None:
    zone = ZoneSeries("a", "r", np.ones(6, dtype=np.int64), np.array([1.0, 9, 9, 9, 1, 1]) * 60, 180.0)
    assert compute_least_usd(SimulationInputs.of(Task(300, 360, 0), Series(60, (zone,)), [0]))[0] == pytest.approx(
        1 + 3 + 3 + 1 + 1
    )


def test_a_dear_move_is_made_only_where_it_pays() -> None:
    here = ZoneSeries("a", "r", np.ones(8, dtype=np.int64), np.array([1.0] * 2 + [3] * 6) * 60, 600.0)
    there = ZoneSeries("b", "s", np.array([0, 0, 1, 1, 1, 1, 1, 1]), np.full(8, 60.0), 600.0)
    series = Series(60, (here, there))
    for egress, least in ((5.0, 2 + 6 + 5), (13.0, 2 + 18)):
        ways = ZoneMoveCosts(egress * (1 - np.eye(2)), np.zeros((2, 2), dtype=np.int64))
        assert compute_least_usd(SimulationInputs.of(Task(480, 480, 0), series, [0], ways))[0] == pytest.approx(least)
