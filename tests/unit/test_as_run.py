"""What the watcher runs, back-tested: the same decisions tick for tick through its own interface, in time whatever the
availability, no pool asked that is left alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.backtest.scores import ShownWindow, follow_window
from router.backtest.windows import AS_RUN, POLICIES, BacktestCell, BacktestSite, WindowLayout, find_backtest_policy
from router.backtest.windows import CheckpointMove as Moved
from router.jobs.run_policy import RunPolicy
from router.spot.live.as_run import play_as_run, pool_lookup
from router.spot.live.pool_backoff import compute_backoff_end
from router.spot.live.selection import build_policy, default_run_policy
from router.spot.policies import Rule
from router.spot.policies.interface import Decision, MoveDecision, Observation, WaitDecision
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import IDLE, ON_DEMAND, SPOT
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import series_of, simulation_inputs

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOON = datetime(2026, 11, 23, 12)  # noqa: DTZ001  only differences count
Log = list[tuple[int, int, Observation, Decision]]


def small(ticks: int = 40) -> RunPolicy:
    """Foresight that is fitted in a moment."""
    return RunPolicy.of("foresight", clock_ticks=10, draws=30, places=5, ticks=ticks)


def log_of(inputs: SimulationInputs, chosen: RunPolicy, *, keeps: bool = True, past: Series | None = None) -> Log:
    log: Log = []
    play_as_run(past, inputs, chosen=chosen, keeps=keeps, heard=lambda *said: log.append(said))
    return log


def zone(name: str, up: list[int], usd: list[float] | None = None, region: str = "") -> ZoneSeries:
    prices = np.ones(len(up)) if usd is None else np.array(usd)
    return ZoneSeries(name, region or name, np.array(up), prices, 3.0)


def availability(seed: int, ticks: int, stays: float) -> list[int]:
    rng, now, found = np.random.default_rng(seed), 1, []
    for _ in range(ticks):
        now = now if rng.random() < stays else 1 - now
        found.append(now)
    return found


def three_zones(ticks: int = 160) -> SimulationInputs:
    """Prices move, spot comes and goes, the checkpoint costs something to move; two windows that overlap."""
    half = ticks // 2
    zones = (
        zone("a", availability(1, ticks, 0.9), [1.0] * half + [1.2] * half),
        zone("b", availability(2, ticks, 0.9), [1.1] * half + [0.9] * half, "a"),
        zone("c", availability(3, ticks, 0.95), [0.8] * ticks),
    )
    series = Series(600, zones)
    ways = ZoneMoveCosts.between(series.regions, lambda _, __: 0.4, 200)
    return SimulationInputs.of(Task(50_000, 72_000, 700), series, [7, 30], ways)


@pytest.mark.slow
@pytest.mark.parametrize("ticks", [40, 240])
def test_the_back_test_decides_as_the_watcher_tick_for_tick(ticks: int) -> None:
    """Each observation of the back-test, shown to a watcher's policy that was begun a moment ago: the same decision.
    With few ticks it sees the job in longer ones than it is asked in."""
    inputs = three_zones()
    past = series_of(inputs).part(0, 100)
    log = log_of(inputs, small(ticks), past=past)
    assert len({tick for _, tick, _, _ in log}) > 80
    assert {type(decision) for _, _, _, decision in log} >= {MoveDecision, WaitDecision}
    fresh = build_policy(small(ticks), watched=pool_lookup(past, inputs))
    for row, tick, seen, decision in log:
        assert fresh.decide(seen) == decision, (row, tick)
    anew = log_of(inputs, small(ticks), keeps=False, past=past)
    assert [(r, t, d) for r, t, _, d in anew] == [(r, t, d) for r, t, _, d in log]


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_what_was_heard_before_is_what_would_be_told_anew(data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=2))
    chosen = small(data.draw(st.sampled_from([7, 40])))
    one, other = (log_of(inputs, chosen, keeps=keeps) for keeps in (True, False))
    assert one == other


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_in_time_in_any_availability(data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=3))
    assert inputs.task.on_demand_is_in_time(inputs.tick_s)
    played = play_as_run(None, inputs, chosen=small())
    assert not played.late.any()
    ran = played.spot_ticks + played.on_demand_ticks
    assert (ran * inputs.tick_s >= inputs.task.work_s).all()
    assert (played.usd >= played.egress_usd).all()


def test_dollars_are_those_of_what_ran() -> None:
    """Spot for an hour, then none for two: it waits, and is done on spot. Launches of ten minutes are billed."""
    up = [1] * 6 + [0] * 12 + [1] * 60
    inputs = SimulationInputs.of(Task(3 * 3600, 9 * 3600, 600), Series(600, (zone("a", up, [0.5] * len(up)),)), [0])
    played = play_as_run(None, inputs, chosen=default_run_policy(Rule.SPOT_OR_WAIT))
    assert (played.launches[0], played.on_demand_ticks[0]) == (2, 0)
    assert played.spot_ticks[0] == 18 + 2
    assert played.usd[0] == pytest.approx(0.5 * 20 / 6)
    assert played.finish_tick[0] > 6 + 12 + 14


def test_a_pool_that_refused_is_not_asked_for_an_hour() -> None:
    """Spot is gone for two hours: of a tick of ten minutes each, it is asked once an hour."""
    up = [1] * 6 + [0] * 24 + [1] * 60
    inputs = SimulationInputs.of(Task(3 * 3600, 14 * 3600, 600), Series(600, (zone("a", up),)), [0])
    log = log_of(inputs, default_run_policy(Rule.SPOT_OR_WAIT))
    asked = [tick for _, tick, _, decision in log if isinstance(decision, MoveDecision) and tick > 5]
    assert asked == [7, 13, 19, 25, 31]
    shut = {tick for _, tick, seen, _ in log if seen.closed}
    assert shut == {6, *range(7, 31)}


def test_pools_are_left_alone_longer_each_time() -> None:
    first = 10 * MINUTE
    assert compute_backoff_end([], NOON, first) == NOON + first
    assert compute_backoff_end([(NOON - HOUR, NOON - HOUR / 2)], NOON, first) == NOON + 2 * first
    assert compute_backoff_end([(NOON - HOUR, NOON + HOUR)], NOON, first) is None
    gone = [(NOON - n * HOUR, NOON - n * HOUR + MINUTE) for n in range(1, 7)]
    assert compute_backoff_end(gone, NOON, first) == NOON + 6 * HOUR


def test_it_has_a_name_and_a_window_that_is_followed_is_the_window_that_was_played() -> None:
    assert find_backtest_policy("AS-RUN") is POLICIES[AS_RUN]
    with pytest.raises(KeyError, match="did you mean as-run"):
        find_backtest_policy("asrun")
    whole = three_zones()
    inputs = SimulationInputs.of(whole.task, series_of(whole), [7], whole.ways)
    site = BacktestSite("three", series_of(inputs), series_of(inputs), 0)
    cell = BacktestCell("job", "three", 3, inputs.task, Moved(), (site,))
    line = follow_window(
        ShownWindow(cell, 0, 0, 7, inputs.up[:, 7 : 7 + inputs.ticks]), WindowLayout(1, 3600), [AS_RUN]
    )[0]
    played = POLICIES[AS_RUN].play(None, SimulationInputs.of(inputs.task, series_of(inputs), [7]), 0.0, paid=True)
    assert line.kind.size == played.finish_tick[0]
    assert (line.kind == SPOT).sum() == played.spot_ticks[0]
    assert (line.kind == ON_DEMAND).sum() == played.on_demand_ticks[0]
    assert line.usd == played.usd[0]
    assert (line.zone[line.kind == IDLE] < 0).all()
