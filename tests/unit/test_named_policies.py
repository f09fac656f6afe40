"""Policies by name: found, refused, in time whatever the availability; a window followed is a window played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.backtest.timeline import ShownWindow, follow_window
from router.backtest.windows import BacktestCell, BacktestSite, CheckpointMove, WindowLayout
from router.spot.policies import Rule
from router.spot.policies.registry import ALIASES, RegisteredPolicy, find_policy, registered_policies
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import IDLE, ON_DEMAND, SPOT, GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.adversary import Adversary, AskedAdversary
from tests.support.spot_windows import series_of, simulation_inputs

POLICIES = registered_policies()
TICK_S = 600
CHANGEOVERS_S = (0, 200, 600, 720, 1500)
SPARES_S = (0, 1, 1300, 5000)
GB = 1.0
WAYS = [(name, paid) for name, p in POLICIES.items() for paid, way in ((False, p.sees), (True, p.asks)) if way]
LEARN = [name for name, p in POLICIES.items() if p.learns]
QUICK = [(name, paid) for name, paid in WAYS if not POLICIES[name].learns]


def test_names_aliases_and_what_was_meant() -> None:
    assert all(find_policy(name) is policy for name, policy in POLICIES.items())
    assert all(find_policy(alias).rule == alias for alias in ALIASES)
    assert all(find_policy(alias).name == meant for alias, meant in ALIASES.items())
    assert find_policy("UP-S").name == "up-s"
    assert all(find_policy(rule).name in POLICIES for rule in Rule if rule is not Rule.GREEDY)
    with pytest.raises(KeyError, match="did you mean skynomad or"):
        find_policy("skynomd")
    with pytest.raises(KeyError, match="one of ours, greedy"):
        find_policy("xyzzy")


def zone(name: str, up: list[int]) -> ZoneSeries:
    return ZoneSeries(name, name, np.array(up), np.ones(len(up)), 3.0)


def test_what_cannot_be_played_is_said() -> None:
    inputs = SimulationInputs.of(Task(600, 1800, 0), Series(TICK_S, (zone("a", [1] * 5),)), [0])
    with pytest.raises(ValueError, match="sliced does not ask"):
        POLICIES["sliced"].play(None, inputs, GB, paid=True)
    with pytest.raises(ValueError, match="ours learns from the past"):
        POLICIES["ours"].play(None, inputs, GB)


@pytest.mark.parametrize(("name", "paid"), QUICK)
@pytest.mark.parametrize("zones", [pytest.param(1, marks=pytest.mark.slow), 3])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_in_time_in_any_availability(name: str, paid: bool, zones: int, data: st.DataObject) -> None:
    """With the exact net, and with the one that it needs."""
    inputs = data.draw(simulation_inputs(zones, windows=6))
    assert inputs.task.on_demand_is_in_time(inputs.tick_s)
    for exact in (True, None):
        assert not POLICIES[name].play(None, inputs, GB, paid=paid, exact=exact).late.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARN)
@pytest.mark.parametrize("zones", [1, 2])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_what_learns_is_in_time_in_any_availability(name: str, zones: int, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(zones, windows=6))
    assert not POLICIES[name].play(series_of(inputs), inputs, GB).late.any()


def hostile(kind: str, changeover_s: int, spare_s: int) -> SimulationInputs:
    """Spot that is not against a policy but bad for all: there every other tick; only before each hour's half; at first
    alone; each zone when the other is not."""
    ticks = 30
    at = np.arange(2 * ticks)
    up = {
        "alternates": at % 2,
        "fades": (at % 6 < 3).astype(int),
        "at first": (at < ticks + 2).astype(int),
        "never": 0 * at,
    }[kind]
    zones = zone("a", up.tolist()), zone("b", (1 - up if kind != "never" else up).tolist())
    task = Task(ticks * TICK_S - changeover_s - spare_s, ticks * TICK_S, changeover_s)
    return SimulationInputs.of(task, Series(TICK_S, zones), [0, 1, 5, 17, 30])


@pytest.mark.parametrize(("name", "paid"), QUICK)
@pytest.mark.parametrize(
    "kind", ["alternates", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fades", "at first", "never"))]
)
def test_in_time_in_availability_bad_for_all(name: str, paid: bool, kind: str) -> None:
    for changeover_s in CHANGEOVERS_S:
        for spare_s in SPARES_S:
            inputs = hostile(kind, changeover_s, spare_s)
            one = SimulationInputs.of(inputs.task, series_of(inputs).only(["a"]), inputs.starts)
            for each in (inputs, one):
                assert not POLICIES[name].play(None, each, GB, paid=paid, exact=True).late.any()


def against(
    policy: RegisteredPolicy, paid: bool, patience: int, past: Callable[[SimulationInputs], Series | None]
) -> int:
    """Misses over changeovers and spare time in availability that takes whatever is started."""
    found, ticks = 0, 30
    for changeover_s in CHANGEOVERS_S:
        for spare_s in SPARES_S:
            task = Task(ticks * TICK_S - changeover_s - spare_s, ticks * TICK_S, changeover_s)
            series = Series(TICK_S, (zone("a", [1] * (ticks + 1)), zone("b", [1] * (ticks + 1))))
            inputs = SimulationInputs.of(
                task, series, [0], ZoneMoveCosts.between(series.regions, lambda _, __: 0.5, 90)
            )
            if not inputs.task.on_demand_is_in_time(TICK_S):
                continue
            if policy.sees is not None and not paid:
                late = simulate(inputs, Adversary(policy.sees(past(inputs), inputs), patience), GuardMode.EXACT).late
            else:
                assert policy.asks is not None
                explorer = AskedAdversary(policy.asks(past(inputs), inputs, GB), inputs, patience)
                late = simulate_blind(inputs, explorer, GuardMode.EXACT).late
            found += int(late.sum())
    return found


@pytest.mark.parametrize(("name", "paid"), QUICK)
@pytest.mark.parametrize("patience", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5))])
def test_in_time_where_all_that_is_started_is_taken(name: str, paid: bool, patience: int) -> None:
    assert against(POLICIES[name], paid, patience, lambda _: None) == 0


@pytest.mark.parametrize("name", LEARN)
@pytest.mark.parametrize("patience", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_what_learns_is_in_time_where_all_that_it_starts_is_taken(name: str, patience: int) -> None:
    def past(inputs: SimulationInputs) -> Series:
        return replace(series_of(inputs), zones=tuple(zone(name, [1, 1, 1, 0] * 30) for name in inputs.zones))

    assert against(POLICIES[name], False, patience, past) == 0


@pytest.mark.parametrize(("name", "paid"), QUICK)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_window_that_is_followed_is_the_window_that_was_played(name: str, paid: bool, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(2, windows=1))
    inputs = SimulationInputs.of(inputs.task, series_of(inputs), inputs.starts)
    site = BacktestSite("both", series_of(inputs), series_of(inputs), 0)
    cell = BacktestCell("job", "both", 2, inputs.task, CheckpointMove(GB), (site,))
    start = int(inputs.starts[0])
    shown = ShownWindow(cell, 0, 0, start, inputs.up[:, start : start + inputs.ticks])
    line = follow_window(shown, WindowLayout(1, 3600), [name], paid=paid)[0]
    played = POLICIES[name].play(None, inputs, GB, paid=paid)
    assert line.kind.size == played.finish_tick[0]
    assert (line.kind == SPOT).sum() == played.spot_ticks[0]
    assert (line.kind == ON_DEMAND).sum() == played.on_demand_ticks[0]
    assert line.usd == played.usd[0]
    ran = np.flatnonzero(line.kind == SPOT)
    assert shown.up[line.zone[ran], ran].all()
    assert (line.zone[line.kind == IDLE] < 0).all()
