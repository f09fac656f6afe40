"""A blind policy where all is seen: it knows what its launches told it, and costs what the blind simulator says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies.asking_policy import AskingPolicy
from router.spot.policies.published.baselines import CheapestSpot
from router.spot.simulator.blind_policy import NEVER, BlindView, LaunchRequest, PolicySession
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import SimulationInputs, SimulationSpec, Task, ZoneMoveCosts
from router.spot.simulator.simulation import IDLE, SPOT, GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import simulation_inputs


@pytest.mark.parametrize("zones", [1, 3])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_policy_that_asks_while_it_runs_nowhere_costs_the_same(zones: int, data: st.DataObject) -> None:
    # Moves are free: where a gang is lost in its start-up, the simulators differ in where its checkpoint is.
    none = np.zeros((zones, zones), dtype=np.int64)
    inputs = replace(
        data.draw(simulation_inputs(zones, feasible=True)), ways=ZoneMoveCosts(none.astype(np.float64), none)
    )
    blind = simulate_blind(inputs, CheapestSpot(), GuardMode.EXACT)
    seen = simulate(inputs, AskingPolicy(CheapestSpot()), GuardMode.EXACT)
    assert seen.usd == pytest.approx(blind.usd)
    for name in ("finish_tick", "late", "spot_ticks", "on_demand_ticks", "launches"):
        assert getattr(seen, name).tolist() == getattr(blind, name).tolist(), name


@dataclass
class _AsksAll(PolicySession):
    """Asks all zones in the order of their numbers in every tick, and notes what it is shown."""

    views: list[tuple[int, list[int], list[bool]]] = field(default_factory=list)

    def begin(self, _: SimulationSpec) -> _AsksAll:
        return self

    def act(self, view: BlindView) -> LaunchRequest:
        shown = np.where(view.answer_tick[:, 0] == NEVER, NEVER, view.tick - view.answer_tick[:, 0])
        self.views.append((int(view.kind[0]), shown.tolist(), view.was_up[:, 0].tolist()))
        wish = LaunchRequest.nothing(view)
        wish.spot[:] = np.arange(len(wish.spot))[:, None]
        wish.spot[view.zone[view.kind == SPOT], np.flatnonzero(view.kind == SPOT)] = np.inf
        return wish


def _inputs(*ups: list[int]) -> SimulationInputs:
    ticks = len(ups[0])
    zones = tuple(ZoneSeries(f"z{i}", "here", np.array(up), np.full(ticks, 1.0 + i), 9.0) for i, up in enumerate(ups))
    return SimulationInputs.of(Task(1800, 600 * ticks, 0), Series(600, zones), [0])


def test_it_hears_of_the_zones_that_it_tried_and_of_where_it_runs() -> None:
    policy = _AsksAll()
    outcome = simulate(_inputs([0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]), AskingPolicy(policy))
    assert policy.views == [
        (IDLE, [NEVER, NEVER, NEVER], [False, False, False]),
        # It ran nowhere: all were tried, in order, until one launched. There it hears that the machines are there.
        (SPOT, [1, 1, 0], [False, False, True]),
        # While it ran, the first choice alone was tried; that said no, and the second was not asked.
        (SPOT, [1, 2, 0], [False, False, True]),
    ]
    assert outcome.launches.tolist() == [2]


def test_it_hears_that_its_machines_were_lost() -> None:
    policy = _AsksAll()
    simulate(_inputs([0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 1, 1, 1, 1]), AskingPolicy(policy))
    kinds, shown, up = zip(*policy.views, strict=True)
    assert kinds[:4] == (IDLE, IDLE, IDLE, IDLE)
    assert shown[1] == [1, 0]
    assert up[1] == [False, False]
