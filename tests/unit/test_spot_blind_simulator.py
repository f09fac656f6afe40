"""Many windows with zones that have to be asked are what each is alone; unasked is unknown; bills, nets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.published.baselines import CheapestSpot
from router.spot.policies.published.moves import CheapestWithMoves, Lindy
from router.spot.policies.published.skynomad import HourValue, SkyNomad
from router.spot.policies.published.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.simulator.blind_policy import BlindPolicy, BlindView, LaunchRequest, PolicySession
from router.spot.simulator.blind_simulator import ProbeFees, simulate_blind
from router.spot.simulator.inputs import SimulationInputs, SimulationSpec, Task, ZoneMoveCosts
from router.spot.simulator.simulation import SPOT, GuardMode
from router.spot.simulator.traces import Bools, Series, ZoneSeries
from tests.support import asked_rules, asked_windows
from tests.support.asked_rules import Dice
from tests.support.asked_windows import Asked, Rule
from tests.support.spot_windows import simulation_inputs

EVERY = 4
SINGLE = 1e-5
ALL: tuple[BlindPolicy, ...] = (
    CheapestSpot(), FailoverProgress(), RateProgress(3600), RatePerUsdProgress(), CheapestWithMoves(), Lindy(),
    SkyNomad(checkpoint_gb=1.0), SkyNomad.v100(), SkyNomad(HourValue.BARRIER, gated=False), Dice(7),
)  # fmt: skip


def paired(inputs: SimulationInputs, seed: int) -> dict[str, tuple[BlindPolicy, Callable[[int], Rule]]]:
    """Each policy for many windows, and for the one that begins at that tick."""
    interval = EVERY * inputs.tick_s
    return {
        "dice": (Dice(seed), Dice(seed).alone),
        "cheapest": (CheapestSpot(), lambda _: asked_rules.Cheapest()),
        "UP(S)": (FailoverProgress(), lambda _: asked_rules.Uniform()),
        "UP(A)": (RateProgress(interval), lambda _: asked_rules.Rated(EVERY)),
        "UP(AP)": (RatePerUsdProgress(interval), lambda _: asked_rules.PerUsd(EVERY)),
    }


@pytest.mark.parametrize("name", ["dice", "cheapest", "UP(S)", "UP(A)", "UP(AP)"])
@pytest.mark.parametrize("zones", [1, 3])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_each_window_costs_what_it_costs_alone(name: str, zones: int, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(zones, feasible=data.draw(st.booleans())))
    guard, fees = data.draw(st.sampled_from(list(GuardMode))), ProbeFees(60, data.draw(st.sampled_from((0, 7))))
    policy, alone = paired(inputs, data.draw(st.integers(0, 99)))[name]
    found = simulate_blind(inputs, policy, guard, fees)
    for number, start in enumerate(inputs.starts.tolist()):
        window = Asked(inputs, start, alone(start), guard, fees)
        assert found.usd[number] == pytest.approx(window.play())
        assert found.finish_tick[number] == window.tick
        assert found.late[number] == (window.tick > inputs.ticks)
        assert found.spot_ticks[number] == window.counts[asked_windows.SPOT]
        assert found.on_demand_ticks[number] == window.counts[asked_windows.DEMAND]
        assert found.launches[number] == window.launches
        assert found.probe_usd[number] == pytest.approx(window.probe_usd)


class Recorded:
    """What a policy was shown and what it did, tick by tick, and where it asked."""

    def __init__(self, policy: BlindPolicy) -> None:
        self.policy, self.seen, self.asked = policy, list[Any](), set[tuple[int, int]]()
        self.inner: PolicySession | None = None

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        self.inner = self.policy.begin(terms)
        return self

    def act(self, known: BlindView, /) -> LaunchRequest:
        assert self.inner is not None
        self._note(known)
        wish = self.inner.act(known)
        self.seen.append((wish.spot.tobytes(), wish.demand.tobytes(), wish.leave.tobytes()))
        return wish

    def look(self, known: BlindView, /) -> Bools | None:
        assert self.inner is not None
        self._note(known)
        looks = self.inner.look(known)
        self.seen.append(None if looks is None else looks.tobytes())
        if looks is not None:
            self.asked.update((zone, known.tick) for zone in np.flatnonzero(looks[:, 0]).tolist())
        if known.kind[0] == SPOT:  # it will say so, or be lost, to the net too
            self.asked.add((int(known.zone[0]), known.tick + 1))
        return looks

    def _note(self, known: BlindView) -> None:
        now = SimpleNamespace(**{name: getattr(known, name) for name in BlindView.__slots__})
        self.seen.append({k: v if isinstance(v, int) else (v.shape, v.tobytes()) for k, v in vars(now).items()})
        self.asked.update((zone, known.tick) for zone in np.flatnonzero(known.answer_tick[:, 0] == known.tick).tolist())


@pytest.mark.parametrize("policy", ALL, ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_was_not_asked_is_not_known(policy: BlindPolicy, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(3, windows=1))
    guard, start = data.draw(st.sampled_from(list(GuardMode))), int(inputs.starts[0])
    first = Recorded(policy)
    bill = simulate_blind(inputs, first, guard)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    up = rng.random(inputs.up.shape) < 0.5
    for zone, tick in first.asked:
        if start + tick < up.shape[1]:
            up[zone, start + tick] = inputs.up[zone, start + tick]
    other = replace(inputs, up=up)
    second = Recorded(policy)
    again = simulate_blind(other, second, guard)
    assert second.seen == first.seen
    assert again.usd[0] == bill.usd[0]


@pytest.mark.parametrize("policy", ALL, ids=str)
@pytest.mark.parametrize("guard", [GuardMode.PUBLISHED, GuardMode.EXACT])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_nothing_is_late_that_on_demand_would_have_done_and_nothing_is_below_the_bound(
    guard: GuardMode, policy: BlindPolicy, data: st.DataObject
) -> None:
    inputs = data.draw(simulation_inputs(data.draw(st.sampled_from((1, 3)))))
    found = simulate_blind(inputs, policy, guard)
    assert inputs.task.on_demand_is_in_time(inputs.tick_s)
    assert not found.late.any()
    assert (compute_least_usd(inputs, moves_at_once=True) <= found.usd * (1 + SINGLE)).all()
    running = found.usd - found.egress_usd - found.probe_usd
    assert (running >= (found.spot_ticks + found.on_demand_ticks) * 0.5 * inputs.tick_s / 3600 - 1e-9).all()


def test_the_bound_knows_that_a_launch_that_is_lost_has_moved_the_checkpoint() -> None:
    """The transfer passes in r1's first zone, for one tick; its second zone then starts without it."""
    up = {"z0": ("r0", "1111000000"), "z1": ("r1", "0000100000"), "z2": ("r1", "0000011111")}
    zones = tuple(ZoneSeries(z, r, np.array([int(c) for c in u]), np.ones(10), 9.0) for z, (r, u) in up.items())
    series = Series(3600, zones)
    ways = ZoneMoveCosts.between(series.regions, lambda a, b: 0.25, 3600)
    inputs = SimulationInputs.of(Task(8 * 3600, 36_000, 1800), series, [0], ways)
    bill = simulate_blind(inputs, CheapestSpot(), GuardMode.NONE)
    assert bill.usd[0] == compute_least_usd(inputs, moves_at_once=True)[0] == 10.25
    assert compute_least_usd(inputs)[0] > 11


def world(*availability: str, work: int, spot: tuple[float, ...], demand: tuple[float, ...]) -> SimulationInputs:
    """One window of ticks of an hour, changeover ten minutes, a dollar to move."""
    zones = tuple(
        ZoneSeries(f"z{n}", f"r{n}", np.array([int(c) for c in up]), np.full(len(up), spot[n]), demand[n])
        for n, up in enumerate(availability)
    )
    series = Series(3600, zones)
    ways = ZoneMoveCosts.between(series.regions, lambda a, b: 1.0)
    return SimulationInputs.of(Task(work, series.ticks * 3600, 600), series, [0], ways)


class Looks:
    """The first zone's spot, and these probes at each tick."""

    def __init__(self, *zones: int) -> None:
        self.zones, self.heard = list(zones), list[tuple[int, ...]]()

    def begin(self, _: SimulationSpec, /) -> PolicySession:
        return self

    def act(self, known: BlindView, /) -> LaunchRequest:
        self.heard.append((*known.answer_tick[:, 0].tolist(), *known.was_up[:, 0].tolist()))
        wish = LaunchRequest.nothing(known)
        wish.spot[0] = 0.0
        return wish

    def look(self, known: BlindView, /) -> Bools | None:
        looks = np.zeros(known.answer_tick.shape, dtype=bool)
        looks[self.zones] = True
        return looks


def test_a_probe_that_succeeds_costs_a_minute_and_one_that_fails_nothing() -> None:
    availability = world("1111111", "0101111", work=3 * 3600, spot=(1.0, 6.0), demand=(3.0, 3.0))
    policy = Looks(0, 1)
    found = simulate_blind(availability, policy)
    assert found.finish_tick[0] == 4
    assert found.probe_usd[0] == pytest.approx(2 * 6.0 / 60)
    assert (found.probes[0], found.probes_up[0]) == (4, 2)
    assert found.usd[0] == pytest.approx(4 * 1.0 + 0.2)
    assert policy.heard == [(-1, -1, 0, 0), (1, 0, 1, 0), (2, 1, 1, 1), (3, 2, 1, 0)]
    assert simulate_blind(availability, Looks(1), fees=ProbeFees(120, 30)).probe_usd[0] == pytest.approx(
        6.0 * (2 * 120 + 2 * 30) / 3600
    )


def test_the_net_leaves_a_healthy_spot_instance_and_stays_where_it_runs() -> None:
    availability = world("111111", "111111", work=4 * 3600, spot=(1.0, 1.0), demand=(9.0, 3.0))
    found = simulate_blind(availability, Looks())
    # work left and d need one whole tick less than there are, at every tick
    assert found.on_demand_ticks[0] == 0
    lost = world("100011", "000000", work=4 * 3600, spot=(1.0, 1.0), demand=(9.0, 3.0))
    found = simulate_blind(lost, Looks())
    assert (found.spot_ticks[0], found.on_demand_ticks[0], found.launches[0]) == (1, 4, 2)
    assert found.egress_usd[0] == 1.0  # nothing ran any more: on to the cheapest
    short = world("111111", "111111", work=5 * 3600 - 600, spot=(1.0, 1.0), demand=(9.0, 3.0))
    found = simulate_blind(short, Looks())
    assert (found.spot_ticks[0], found.on_demand_ticks[0], found.egress_usd[0]) == (1, 5, 0.0)
    assert found.usd[0] == pytest.approx(1 + 5 * 9)
    rides = simulate_blind(short, Looks(), GuardMode.EXACT)
    assert (rides.spot_ticks[0], rides.on_demand_ticks[0], rides.usd[0]) == (5, 0, 5.0)


def test_a_job_that_cannot_be_in_time_goes_on_demand_at_once_and_is_late() -> None:
    found = simulate_blind(world("111", work=3 * 3600, spot=(1.0,), demand=(3.0,)), Looks())
    assert (found.late[0], found.finish_tick[0], found.usd[0]) == (True, 4, 12.0)
    found = simulate_blind(world("111", work=3 * 3600, spot=(1.0,), demand=(3.0,)), Looks(), GuardMode.NONE)
    assert (found.late[0], found.spot_ticks[0], found.on_demand_ticks[0]) == (True, 3, 1)


def test_a_move_that_pays_is_made_at_once_or_once_the_zone_has_lasted() -> None:
    availability = world("1" * 12, "00" + "1" * 10, work=10 * 3600, spot=(2.0, 1.0), demand=(9.0, 9.0))
    at_once = simulate_blind(availability, CheapestWithMoves())
    assert (at_once.launches[0], at_once.egress_usd[0], at_once.probes[0]) == (2, 1.0, 0)
    assert at_once.usd[0] == pytest.approx(2 * 2 + 9 * 1 + 1)
    # tried at tick 0, found down at 1 and up at 2; the move pays from an age of 1 h 10 min on, so at tick 4
    lasted = simulate_blind(availability, Lindy())
    assert (lasted.launches[0], lasted.probes[0], lasted.probes_up[0]) == (2, 2, 1)
    assert lasted.usd[0] == pytest.approx(4 * 2 + 7 * 1 + 1 + 1 / 60)
    soon_done = world("1" * 5, "00111", work=3 * 3600, spot=(2.0, 1.0), demand=(9.0, 9.0))
    for policy in (CheapestWithMoves(), Lindy()):
        assert simulate_blind(soon_done, policy).launches[0] == 1


def test_a_fee_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="less than zero"):
        ProbeFees(-1)
