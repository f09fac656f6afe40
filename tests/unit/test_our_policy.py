"""Our policy is fitted to the past of a back-test alone, never to the availability of the window it is scored on."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.availability.hazard_model import HazardModel
from router.spot.policies import our_policy
from router.spot.policies.asking_policy import AskingPolicy
from router.spot.policies.our_policy import (
    OnDemandNow,
    build_expected_inputs,
    policy_for,
    policy_from,
    quoted_policy_for,
)
from router.spot.simulator.inputs import SimulationInputs, Task
from router.spot.simulator.simulation import FullInfoPolicy, GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import known_hazards, series_of

TASK = Task(7200, 14400, 600, size=2)
WHOLE = Task(7200, 36000, 600)


def zone(name: str, counts: list[int], usd: list[float]) -> ZoneSeries:
    return ZoneSeries(name, "here", np.array(counts), np.array(usd), 3.0)


def paced(series: Series) -> SimulationInputs:
    return SimulationInputs.of(TASK, series, [0, 2], speed=np.array([0.5, 1.0]), launch_s=np.array([60, 0]))


PAST = Series(
    600,
    (
        zone("z", [0] * 6, [1.0] * 6),
        zone("a", [2, 2, 1, 2, 0, 2], [1.0, 2.0, 9.0, 3.0, 9.0, 7.0]),
        zone("b", [0] * 6, [1.0, 1.0, 1.0, 1.0, 5.0, 5.0]),
    ),
)
SCENE = paced(Series(600, tuple(zone(name, [5] * 30, [0.1] * 30) for name in ("a", "b"))))


def test_prices_expected_are_the_last_of_the_past_and_no_spot_is_shown() -> None:
    like = build_expected_inputs(PAST, SCENE)
    assert like.spot_usd[:, 0].tolist() == [2 * 7.0, 2 * 5.0]
    assert (like.spot_usd == like.spot_usd[:, :1]).all()
    assert not like.up.any()
    assert like.starts.tolist() == [0]
    assert (like.task, like.ticks) == (SCENE.task, SCENE.ticks)
    assert (like.speed == SCENE.speed).all()
    assert (like.launch_s == SCENE.launch_s).all()
    assert (like.on_demand_usd == SCENE.on_demand_usd).all()


def test_the_outlook_is_of_the_scenes_zones_in_their_order_and_learns_from_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[HazardModel, SimulationInputs]] = []

    def note(outlook: HazardModel, like: SimulationInputs) -> FullInfoPolicy:
        made.append((outlook, like))
        return policy_for(outlook, like)

    monkeypatch.setattr(our_policy, "policy_for", note)
    turned = paced(series_of(SCENE).only(["b", "a"]))
    policy = policy_from(PAST, turned)
    [(outlook, like)] = made
    whole = HazardModel.of(PAST, TASK.size)
    assert (outlook.events == whole.events[[2, 1]]).all()
    assert (outlook.hours == whole.hours[[2, 1]]).all()
    assert list(like.zones) == ["b", "a"]
    assert not simulate(turned, policy, GuardMode.EXACT).late.any()
    with pytest.raises(KeyError):
        policy_from(PAST.only(["a"]), SCENE)


def test_who_asks_is_told_of_the_same_speeds_and_launches() -> None:
    terms = SCENE.spec
    assert (terms.speed == SCENE.speed).all()
    assert (terms.launch_s == SCENE.launch_s).all()
    assert terms.worst_s == TASK.changeover_s + 60


def without_spot(speed: list[float], usd: list[float]) -> SimulationInputs:
    none = np.zeros(60, dtype=np.int64)
    zones = tuple(ZoneSeries(f"z{i}", "here", none, np.full(60, 1.0), price) for i, price in enumerate(usd))
    return SimulationInputs.of(WHOLE, Series(600, zones), [0], speed=np.array(speed))


def test_the_cheapest_that_is_in_time_runs_from_the_first_tick() -> None:
    got = simulate(without_spot([1.0, 0.5, 0.1], [10.0, 3.0, 0.1]), OnDemandNow(), GuardMode.EXACT)
    assert got.on_demand_ticks.tolist() == [25]
    assert got.finish_tick.tolist() == [25]
    assert (got.launches.tolist(), got.late.tolist()) == ([1], [False])
    assert got.usd.tolist() == [25 * 3.0 / 6]


def test_our_policy_waits_for_no_spot_that_never_comes() -> None:
    like = without_spot([1.0, 0.5], [10.0, 3.0])
    never, usual = (known_hazards(np.full(2, 0.1), np.full(2, back), 100.0) for back in (1e-6, 0.5))
    assert policy_for(never, like) == quoted_policy_for(never, like) == OnDemandNow()
    assert type(policy_for(usual, like)) is not OnDemandNow
    assert type(quoted_policy_for(usual, like)) is AskingPolicy
