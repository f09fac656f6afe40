"""Many windows at once are what each of them is by itself, played in plain Python as the rules are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies.published.baselines import GreedySpot, TimeSliced, UniformProgress, rank_by_price_elsewhere
from router.spot.simulator.inputs import SimulationInputs, Task
from router.spot.simulator.simulation import FullInfoPolicy, GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support import spot_windows as plain
from tests.support.spot_windows import Action, Window, series_of, simulation_inputs

POLICIES: dict[str, tuple[FullInfoPolicy, Callable[[Window], Action]]] = {
    "greedy": (GreedySpot(), plain.greedy),
    "uniform": (UniformProgress(), partial(plain.uniform, hysteresis=True, spot=plain.greedy)),
    "plain uniform": (UniformProgress(hysteresis=False), partial(plain.uniform, hysteresis=False, spot=plain.greedy)),
    "failover": (
        UniformProgress(ranking=rank_by_price_elsewhere),
        partial(plain.uniform, hysteresis=True, spot=plain.elsewhere),
    ),
    "sliced": (TimeSliced(3), partial(plain.sliced, n=3)),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("zones", [1, 3])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_each_window_costs_what_it_costs_alone(name: str, zones: int, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(zones, feasible=data.draw(st.booleans())))
    net = data.draw(st.sampled_from(list(GuardMode)))
    policy, decide = POLICIES[name]
    found = simulate(inputs, policy, net)
    for number, start in enumerate(inputs.starts.tolist()):
        window = Window(inputs, start, decide, net)
        assert found.usd[number] == pytest.approx(window.play())
        assert found.finish_tick[number] == window.tick
        assert found.late[number] == (window.tick > inputs.ticks)
        assert found.spot_ticks[number] == sum(kind == plain.SPOT for kind, _ in window.log)
        assert found.on_demand_ticks[number] == sum(kind == plain.DEMAND for kind, _ in window.log)


def inputs(availability: str, work: int, changeover: int, prices: float = 1.0) -> SimulationInputs:
    """One window of ticks of an hour; on-demand costs 3."""
    counts = np.array([int(c) for c in availability])
    zone = ZoneSeries("a", "r", counts, np.full(counts.size, prices), 3.0)
    return SimulationInputs.of(Task(work, counts.size * 3600, changeover), Series(3600, (zone,)), [0])


def test_a_started_tick_is_paid_whole_and_so_is_the_delay() -> None:
    found = simulate(inputs("1111111111", 2 * 3600, 600), GreedySpot())
    assert (found.usd[0], found.spot_ticks[0], found.finish_tick[0], found.launches[0]) == (3.0, 3, 3, 1)


def test_what_was_done_before_a_loss_is_kept() -> None:
    found = simulate(inputs("1010100000", 3 * 1800, 1800), GreedySpot())
    assert (found.usd[0], found.launches[0], found.finish_tick[0]) == (3.0, 3, 5)


def test_nothing_runs_after_the_work() -> None:
    assert simulate(inputs("1111111111", 3600, 0), UniformProgress()).finish_tick[0] == 1


def test_what_cannot_be_in_time_ends_on_demand_after_the_deadline() -> None:
    found = simulate(inputs("000", 3 * 3600, 3600), GreedySpot())
    assert found.late[0]
    assert (found.finish_tick[0], found.usd[0], found.launches[0]) == (4, 12.0, 1)


def test_no_time_at_all_is_late_too() -> None:
    zone = ZoneSeries("a", "r", np.ones(4, dtype=np.int64), np.ones(4), 3.0)
    found = simulate(SimulationInputs.of(Task(3600, 0, 0), Series(3600, (zone,)), [0]), GreedySpot())
    assert found.late[0]
    assert found.usd[0] == 3.0


def test_a_gang_pays_for_all_its_machines() -> None:
    zone = ZoneSeries("a", "r", np.array([3, 4, 4, 3]), np.ones(4), 3.0)
    found = simulate(
        SimulationInputs.of(Task(7200, 4 * 3600, 0, size=4), Series(3600, (zone,)), [0]), GreedySpot(), GuardMode.EXACT
    )
    assert (found.spot_ticks[0], found.usd[0]) == (2, 8.0)


def test_a_policy_sees_what_was_before_its_window() -> None:
    zone = ZoneSeries("a", "r", np.array([1, 0, 1, 1, 0, 0]), np.ones(6), 3.0)
    up, known = SimulationInputs.of(Task(60, 60, 0), Series(60, (zone,)), [1, 4]).before(3)
    assert up[0].tolist() == [[False, False, True], [False, True, True]]
    assert known[0].tolist() == [[False, False, True], [True, True, True]]


@pytest.mark.parametrize(
    ("work", "deadline", "changeover", "size"), [(0, 9, 0, 1), (1, -1, 0, 1), (1, 1, -1, 1), (1, 1, 1, 0)]
)
def test_a_task_is_refused(work: int, deadline: int, changeover: int, size: int) -> None:
    with pytest.raises(ValueError, match="a task has work"):
        Task(work, deadline, changeover, size)


def test_windows_lie_within_the_series() -> None:
    with pytest.raises(ValueError, match="beyond"):
        SimulationInputs.of(Task(60, 4 * 3600, 0), series_of(inputs("1111", 60, 0)), [1])
