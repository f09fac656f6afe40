"""What steers one job decides as it does in the back-test; what it is told, keeps, and leaves to others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.policies.foresight_policies import BlindForesightPolicy
from router.spot.policies.published.baselines import CheapestSpot, TimeSliced, UniformProgress
from router.spot.policies.published.baselines import GreedySpot as SpotOrWait
from router.spot.policies.published.moves import CheapestWithMoves, Lindy
from router.spot.policies.published.optimistic import OptimisticAdapter, PresentPolicy
from router.spot.policies.published.skynomad import HourValue, SkyNomad
from router.spot.policies.published.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.policies.registry import LivePolicy
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.blind_simulator import ProbeFees, simulate_blind
from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import GuardMode, simulate
from tests.support.asked_rules import Dice
from tests.support.spot_windows import known_hazards, series_of, simulation_inputs
from tests.support.steered_game import Steer, in_money

ALL: dict[str, BlindPolicy] = {
    "cheapest": CheapestSpot(), "UP(S)": FailoverProgress(), "UP(A)": RateProgress(3600),
    "UP(AP)": RatePerUsdProgress(600), "moves": CheapestWithMoves(), "lindy": Lindy(),
    "SkyNomad": SkyNomad(checkpoint_gb=1.0), "SkyNomad v100": SkyNomad.v100(),
    "SkyNomad barrier": SkyNomad(HourValue.BARRIER, gated=False), "dice 7": Dice(7), "dice 8": Dice(8),
    "UP": OptimisticAdapter(UniformProgress()), "wait": OptimisticAdapter(SpotOrWait(), 2),
    "sliced": OptimisticAdapter(TimeSliced(3)),
}  # fmt: skip
LONG = {"UP(A)", "UP(AP)", "lindy", "SkyNomad v100", "SkyNomad", "moves"}  # seconds each
FREE: dict[str, PresentPolicy] = {
    "wait": SpotOrWait(),
    "UP": UniformProgress(),
    "UP plain": UniformProgress(False),
    "sliced": TimeSliced(3),
}


def _foreseen(inputs: SimulationInputs) -> BlindPolicy:
    """Fitted to the inputs' market, to availability that its own is not, so that it is wrong now and then."""
    zones = np.ones(len(inputs.up))
    outlook = known_hazards(zones * 0.5, zones, 20.0)
    return BlindForesightPolicy.fitted(outlook, inputs.spec, inputs.spot_usd.mean(axis=1))


@pytest.mark.parametrize("name", [name for name in ALL if name not in LONG])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_watcher_decides_as_the_back_test_does(name: str, data: st.DataObject) -> None:
    _decides_alike(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_watcher_decides_as_the_back_test_does_in_more_scenes(name: str, data: st.DataObject) -> None:
    _decides_alike(name, data)


def _decides_alike(name: str, data: st.DataObject) -> None:
    inputs = data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=1))
    if name == "sliced":  # reckons with the longest way from the start; a job that has saved nothing has none to know
        inputs = SimulationInputs.of(inputs.task, series_of(inputs), inputs.starts)
    _same_in_both(in_money(inputs), ALL[name])


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(simulation_inputs(2, windows=1))
def test_foresight_decides_as_in_the_back_test(inputs: SimulationInputs) -> None:
    inputs = in_money(inputs)
    _same_in_both(inputs, _foreseen(inputs))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_and_so_it_does_in_more_scenes(data: st.DataObject) -> None:
    inputs = in_money(data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=1)))
    _same_in_both(inputs, _foreseen(inputs))


def _same_in_both(inputs: SimulationInputs, explorer: BlindPolicy) -> None:
    bill = simulate_blind(inputs, explorer, GuardMode.NONE, ProbeFees(60, 0))
    game = Steer(inputs, PolicyAdapter(LivePolicy(lambda *_: explorer)))
    usd = game.play()
    if bill.late[0]:  # what comes after the deadline is not a policy's
        assert game.left > 0
        return
    assert usd == pytest.approx(bill.usd[0]), game.log
    assert (game.tick, game.launches, game.probes) == (bill.finish_tick[0], bill.launches[0], bill.probes[0])


@pytest.mark.parametrize("rule", FREE)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_who_believes_until_it_hears_no_does_as_who_sees_all(rule: str, data: st.DataObject) -> None:
    """The same but for where the checkpoint is said to be, which is told apart in moves that cost something."""
    policy = FREE[rule]
    inputs = data.draw(simulation_inputs(data.draw(st.integers(1, 3)), windows=4))
    inputs = SimulationInputs.of(inputs.task, series_of(inputs), inputs.starts)
    seen, asked = (
        simulate(inputs, policy, GuardMode.NONE),
        simulate_blind(inputs, OptimisticAdapter(policy), GuardMode.NONE),
    )
    done = ~seen.late
    np.testing.assert_array_equal(asked.late, seen.late)
    for name in ("finish_tick", "spot_ticks", "on_demand_ticks", "launches"):
        np.testing.assert_array_equal(getattr(asked, name)[done], getattr(seen, name)[done])
    np.testing.assert_allclose(asked.usd[done], seen.usd[done])
