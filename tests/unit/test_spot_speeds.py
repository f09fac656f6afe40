"""Zones of different speeds, with launch times of their own, some without on-demand: what a tick does there, and that
no window is late that the soonest on-demand from its first tick on would have finished in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.published.baselines import GreedySpot, TimeSliced, UniformProgress, rank_by_price
from router.spot.simulator.blind_policy import BlindView, LaunchRequest
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import SimulationInputs, SimulationSpec, Task, ZoneMoveCosts, ZoneSpeeds
from router.spot.simulator.simulation import (
    IDLE,
    ON_DEMAND,
    SPOT,
    Actions,
    FullInfoPolicy,
    FullInfoSession,
    FullView,
    GuardMode,
    SimulationOutcome,
    simulate,
)
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.adversary import Adversary
from tests.support.spot_windows import series_of

G = 60


def zone(name: str, counts: str, spot: float = 1.0, demand: float = 3.0) -> ZoneSeries:
    """``1`` is a tick with a machine."""
    up = np.array([int(c) for c in counts], dtype=np.int64)
    return ZoneSeries(name, name, up, np.full(up.size, spot), demand)


def play(
    zones: tuple[ZoneSeries, ...],
    task: Task,
    policy: FullInfoPolicy,
    net: GuardMode = GuardMode.EXACT,
    speed: tuple[float, ...] = (),
    launch_s: tuple[int, ...] = (),
) -> SimulationOutcome:
    speeds, launches = np.array(speed or [1.0] * len(zones)), np.array(launch_s or [0] * len(zones))
    inputs = SimulationInputs.of(task, Series(G, zones), [0], None, speeds, launches)
    return simulate(inputs, policy, net)


def test_half_the_speed_takes_twice_as_long() -> None:
    found = play((zone("a", "1" * 20),), Task(5 * G, 20 * G, 0), GreedySpot(), GuardMode.NONE, speed=(0.5,))
    assert (found.finish_tick[0], found.spot_ticks[0], found.usd[0]) == (10, 10, pytest.approx(10 / 60))


def test_what_a_tick_leaves_of_a_second_is_kept() -> None:
    """A third of 60 s is 20 s; of 0.35 * 60 = 21 s nothing is lost over ticks of a length that does not divide."""
    found = play(
        (zone("a", "1" * 40),), Task(int(0.349 * 60 * 30), 40 * G, 0), GreedySpot(), GuardMode.NONE, speed=(0.349,)
    )
    assert found.finish_tick[0] == 30


def test_a_launch_takes_what_the_zone_says_on_top() -> None:
    found = play((zone("a", "1" * 20),), Task(5 * G, 20 * G, 30), GreedySpot(), GuardMode.NONE, launch_s=(30 + G,))
    assert found.finish_tick[0] == 7


def test_cheapest_is_by_work() -> None:
    """Twice the price at three times the speed."""
    zones = (zone("slow", "1" * 9), zone("fast", "1" * 9, spot=2.0))
    found = play(zones, Task(6 * G, 9 * G, 0), GreedySpot(), GuardMode.NONE, speed=(1.0, 3.0))
    assert (found.finish_tick[0], found.usd[0]) == (2, pytest.approx(2 * 2 / 60))
    inputs = SimulationInputs.of(Task(60, 60, 0), Series(G, zones), [0])
    now = np.array([[1.0], [2.0]])
    assert rank_by_price(inputs, _now(now)).tolist() == now.tolist()


def _now(spot_usd: np.ndarray) -> FullView:
    none = np.zeros(1, dtype=np.int64)
    return FullView(
        0, 1, none, none, none.astype(np.int8), none, none - 1, none, spot_usd, none - 1, none, spot_usd > 0
    )


def test_the_net_takes_the_cheapest_on_demand_that_is_in_time() -> None:
    """Ten ticks, four of work: the slow zone is half the price and needs 8 ticks. The net first acts at tick 6."""
    zones = (zone("fast", "0" * 10, demand=6.0), zone("slow", "0" * 10, demand=1.0))
    early = play(zones, Task(4 * G, 8 * G, 0), _Always(ON_DEMAND, 1), speed=(1.0, 0.5))
    assert (early.usd[0], early.finish_tick[0], early.late[0]) == (pytest.approx(8 / 60), 8, False)
    idle = play(zones, Task(4 * G, 10 * G, 0), GreedySpot(), speed=(1.0, 0.5))
    assert (idle.usd[0], idle.finish_tick[0]) == (pytest.approx(4 * 6 / 60), 10)


def test_the_net_leaves_a_slow_on_demand_zone_at_the_last_moment() -> None:
    """It would need 20 ticks of the 10; the fast one needs what is left: 5 ticks there do 2 of the 7."""
    zones = (zone("fast", "0" * 10, demand=6.0), zone("slow", "0" * 10, demand=1.0))
    found = play(zones, Task(7 * G, 10 * G, 0), _Always(ON_DEMAND, 1), speed=(1.0, 0.4))
    assert (found.late[0], found.launches[0], found.usd[0]) == (False, 2, pytest.approx((5 * 1 + 5 * 6) / 60))


def test_without_on_demand_a_late_window_has_no_price() -> None:
    zones = (zone("a", "0" * 5 + "1", demand=np.inf),)
    found = play(zones, Task(3 * G, 6 * G, 0), UniformProgress())
    assert (found.late[0], found.usd[0], found.on_demand_ticks[0] >= 0) == (True, np.inf, True)
    up = play((zone("a", "1" * 6, demand=np.inf),), Task(3 * G, 6 * G, 0), _Always(ON_DEMAND, 0), GuardMode.NONE)
    assert up.launches[0] == 0 or up.usd[0] == np.inf


def test_on_demand_is_not_started_where_none_is_sold() -> None:
    zones = (zone("a", "1" * 6, demand=np.inf), zone("b", "0" * 6, spot=9.0, demand=2.0))
    found = play(zones, Task(3 * G, 6 * G, 0), _Always(ON_DEMAND, 0))
    assert (found.usd[0], found.finish_tick[0], found.on_demand_ticks[0]) == (pytest.approx(3 * 2 / 60), 6, 3)


def test_who_knows_one_speed_only_says_so() -> None:
    inputs = SimulationInputs.of(Task(60, 120, 0), Series(G, (zone("a", "11"),)), [0], speed=np.array([0.5]))
    with pytest.raises(ValueError, match="one speed"):
        simulate(inputs, GreedySpot(), GuardMode.PUBLISHED)
    with pytest.raises(ValueError, match="one speed"):
        compute_least_usd(inputs)
    with pytest.raises(ValueError, match="one speed"):
        simulate_blind(inputs, _Nothing())


@pytest.mark.parametrize(
    ("speed", "launch_s"), [([0.0], [0]), ([np.nan], [0]), ([-1.0], [0]), ([1.0], [-1]), ([1, 1], [0])]
)
def test_what_is_no_speed(speed: list[float], launch_s: list[int]) -> None:
    with pytest.raises(ValueError, match="speed"):
        SimulationInputs.of(
            Task(60, 120, 0), Series(G, (zone("a", "11"),)), [0], speed=np.array(speed), launch_s=np.array(launch_s)
        )


class _Nothing:
    """Never asked."""

    def begin(self, terms: SimulationSpec) -> _Nothing:
        raise AssertionError(terms)

    def act(self, known: BlindView) -> LaunchRequest:
        raise AssertionError(known)

    def look(self, known: BlindView) -> None:
        raise AssertionError(known)


class _Always:
    """One wish."""

    def __init__(self, kind: int, at: int) -> None:
        self.kind, self.at = kind, at

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        def wish(now: FullView) -> Actions:
            return np.full(now.kind.size, self.kind, dtype=np.int8), np.full(now.kind.size, self.at, dtype=np.int64)

        return wish


class _Erratic:
    """Anything at all, anywhere, up or not, sold or not."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        rng = np.random.default_rng(self.seed)

        def wish(now: FullView) -> Actions:
            count = now.kind.size
            kind = rng.choice(np.array([IDLE, SPOT, SPOT, ON_DEMAND], dtype=np.int8), count)
            stays = rng.random(count) < 0.6
            at = rng.integers(len(now.up), size=count)
            return np.where(stays, now.kind, kind), np.where(stays, now.zone, at)

        return wish


@st.composite
def uneven(draw: st.DrawFn, zones: int) -> SimulationInputs:
    """Any availability, price, speed, launch and move; the soonest on-demand from the first tick on is in time, or has
    some time to spare."""
    rng = Random(draw(st.integers(0, 2**32)))
    g = rng.choice((7, 60, 600))
    task = Task(rng.randrange(1, 15 * g), 0, rng.choice((0, g // 3, g, 2 * g + 1)), 1)
    speed = np.array([rng.choice((1.0, 0.5, 1 / 3, rng.uniform(0.2, 3.0))) for _ in range(zones)])
    launch_s = np.array([rng.choice((0, 0, g // 2, 3 * g)) for _ in range(zones)])
    sold = [rng.random() < 0.7 for _ in range(zones)]
    sold[rng.randrange(zones)] = True
    moves = np.array([[0 if a == b else rng.choice((0, g // 3, 2 * g)) for b in range(zones)] for a in range(zones)])
    egress = np.where(moves > 0, rng.choice((0.0, 0.5)), 0.0)
    takes = [
        -(-task.work_s * 1_000_000 // round(s * 1_000_000)) + task.changeover_s + w
        for s, w in zip(speed, launch_s, strict=True)
    ]
    least = min(t for t, has in zip(takes, sold, strict=True) if has)
    ticks = -(-least // g) + rng.choice((0, 0, 1, 3, 10, 30))
    length = ticks + 30
    made = tuple(
        ZoneSeries(
            f"z{i}",
            f"r{i % 2}",
            np.array([int(rng.random() < 0.5) for _ in range(length)]),
            np.array([rng.uniform(0.5, 2) for _ in range(length)]),
            rng.uniform(2, 4) if sold[i] else np.inf,
        )
        for i in range(zones)
    )
    task = replace(task, deadline_s=ticks * g + rng.randrange(g))
    starts = np.array([rng.randrange(30) for _ in range(8)])
    return SimulationInputs.of(
        task, Series(g, made), starts, ZoneMoveCosts(egress, moves.astype(np.int64)), speed, launch_s
    )


@pytest.mark.parametrize("zones", [1, 2, 4])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_exact_net_misses_nothing_that_could_be_met(zones: int, data: st.DataObject) -> None:
    inputs = data.draw(uneven(zones))
    policies: list[FullInfoPolicy] = [GreedySpot(), UniformProgress(), UniformProgress(False), TimeSliced(3)]
    policies += [_Erratic(data.draw(st.integers(0, 99))), _Always(ON_DEMAND, data.draw(st.integers(0, zones - 1)))]
    found = simulate(inputs, data.draw(st.sampled_from(policies)), GuardMode.EXACT)
    assert not found.late.any()
    assert np.isfinite(found.usd).all()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_nor_in_availability_that_takes_whatever_is_started(data: st.DataObject) -> None:
    inputs = data.draw(uneven(2))
    one = replace(inputs, starts=inputs.starts[:1])
    choices: list[FullInfoPolicy] = [GreedySpot(), UniformProgress(False), _Erratic(3)]
    policy = data.draw(st.sampled_from(choices))
    assert not simulate(one, Adversary(policy, data.draw(st.integers(1, 4))), GuardMode.EXACT).late.any()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_of_speed_one_nothing_changes_but_the_zone_on_demand(data: st.DataObject) -> None:
    """The net of paces, asked with speeds of one and a launch of a zone that is never taken, is the plain one."""
    inputs = data.draw(uneven(1))
    plain = SimulationInputs.of(inputs.task, series_of(inputs), inputs.starts)
    if not inputs.task.on_demand_is_in_time(inputs.tick_s):
        return
    paces = replace(plain, speed=np.array([1.0 + 1e-9]))  # the same to a millionth, and not alike
    assert ZoneSpeeds(paces).pace[0] == 1_000_000
    policy = UniformProgress(False)
    ours, theirs = simulate(paces, policy, GuardMode.EXACT), simulate(plain, policy, GuardMode.EXACT)
    assert ours.usd.tolist() == theirs.usd.tolist()
    assert ours.finish_tick.tolist() == theirs.finish_tick.tolist()


@dataclass(frozen=True)
class _MovesAt:
    """On spot in the first zone; from a tick on in the second."""

    tick: int

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        def act(now: FullView) -> Actions:
            zone = np.full(now.window.size, int(now.tick >= self.tick))
            return np.full(now.window.size, SPOT, dtype=np.int8), zone

        return act


@pytest.mark.parametrize("second", [1.0, 0.9])
def test_spot_that_runs_goes_on_where_a_move_would_be_too_late(second: float) -> None:
    """Six ticks of work, launches of one: with eight ticks a move at the fourth could be too late, with nine it could
    not. What runs is done in time."""
    zones = (zone("a", "1" * 9), zone("b", "1" * 9))
    kept, moved = (play(zones, Task(6 * G, n * G, G), _MovesAt(3), speed=(1.0, second)) for n in (8, 9))
    assert (kept.spot_ticks[0], kept.on_demand_ticks[0], kept.launches[0], kept.late[0]) == (7, 0, 1, False)
    assert moved.launches[0] > 1
    assert not moved.late[0]
