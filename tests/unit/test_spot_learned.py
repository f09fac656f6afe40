"""Backward induction against all that could be done, and the policies that use it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.spot.availability.hazards import AvailabilityChain, ChainShape, LogisticHazards
from router.spot.policies import action_values
from router.spot.policies.our_policy import CHAIN_INFEASIBLE_USD, ChainPolicy, SlackGrid, policy_from, solve_chain
from router.spot.policies.published.baselines import GreedySpot, UniformProgress
from router.spot.simulator.inputs import SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import GuardMode, simulate
from router.spot.simulator.traces import Series, ZoneSeries
from tests.support.spot_windows import series_of, simulation_inputs

TICK_S = 600


@pytest.fixture(autouse=True, scope="module")
def _few_fits() -> Iterator[None]:
    """Prices here are random at each tick: it needs not be fitted to each of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_values, "MOST", 3)
        yield


def memoryless(zones: int, ticks: int, seed: int, fall: float = 0.04, rise: float = 0.06) -> Series:
    rng = np.random.default_rng(seed)
    made = []
    for z in range(zones):
        up = [0]
        for _ in range(ticks - 1):
            up.append(up[-1] ^ int(rng.random() < (fall if up[-1] else rise)))
        made.append(ZoneSeries(f"z{z}", f"r{z}", np.array(up), np.full(ticks, 1.0), 3.0))
    return Series(TICK_S, tuple(made))


def test_one_zone_is_as_good_as_the_best_of_all_plans() -> None:
    """A chain whose states are up and down alone, changeover of one tick: the same recursion, written down plainly."""
    chain = AvailabilityChain.of(
        LogisticHazards.of([memoryless(1, 300, 1).up()], TICK_S), ChainShape((1, 2), (0.0, 1.0), (0.0, 1.0))
    )
    fall, rise = 0.1, 0.3
    chain.change[:, 1], chain.change[:, 0] = fall, rise
    ticks, slack = 6, 3
    values = solve_chain(chain, SlackGrid(1, 1, slack + 1, TICK_S), ticks, 1.0, 3.0)

    @lru_cache
    def best(n: int, lost: int, kind: str, up: bool) -> float:
        """``lost`` ticks of slack are left; least dollars with n ticks to go."""
        return 0.0 if lost >= n else min(options(n, lost, kind, up).values())

    def options(n: int, lost: int, kind: str, up: bool) -> dict[str, float]:
        def then(price: float, left: int, to: str) -> float:
            if left < 0:
                return CHAIN_INFEASIBLE_USD
            p = fall if up else rise
            after = [(not up, p), (up, 1 - p)]
            return price + sum(
                share * best(n - 1, left, "idle" if to == "spot" and not now else to, now) for now, share in after
            )

        found = {"wait": then(0, lost - 1, "idle"), "launch demand": then(3, lost - 1, "demand")}
        found["launch"] = then(1, lost - 1, "spot") if up else CHAIN_INFEASIBLE_USD
        if kind == "spot":
            found["stay"] = then(1, lost, "spot")
        if kind == "demand":
            found["stay demand"] = then(3, lost, "demand")
        return found

    for lost, up in product(range(slack + 1), (False, True)):
        plain = options(ticks, lost, "spot" if up else "idle", up)
        wait = float(values.wait[-1, 0, int(up), 0, 0, lost])
        assert min(wait, 500) == pytest.approx(min(plain["wait"], 500), rel=1e-3)
        for i, name in enumerate(("launch", "stay", "launch demand")):
            if plain.get(name, CHAIN_INFEASIBLE_USD) < 500 and wait < 500:
                more = float(values.more[-1, 0, int(up), 0, 0, lost, i])
                assert wait + more == pytest.approx(plain[name], abs=0.02)


@pytest.mark.slow
def test_cheaper_than_the_published_on_availability_like_that_of_the_past() -> None:
    past, future = memoryless(3, 1500, 2), memoryless(3, 1500, 3)
    task = Task(24 * 3600, 30 * 3600, 720)
    starts = np.arange(0, 1300, 20)
    for names in (["z0"], ["z0", "z1", "z2"]):
        series = future.only(names)
        inputs = SimulationInputs.of(task, series, starts, ZoneMoveCosts.between(series.regions, lambda a, b: 1.0))
        ours = policy_from(past.only(names), inputs)
        found = simulate(inputs, ours, GuardMode.EXACT)
        again = simulate(inputs, ours, GuardMode.EXACT)
        assert (found.usd == again.usd).all()
        assert not found.late.any()
        for other in (GreedySpot(), UniformProgress(), UniformProgress(False)):
            assert found.usd.mean() < simulate(inputs, other).usd.mean()


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs=st.one_of(simulation_inputs(), simulation_inputs(zones=2), simulation_inputs(zones=4)))
def test_no_deadline_is_missed_that_on_demand_would_have_met(inputs: SimulationInputs) -> None:
    """Whatever the availability, and whatever the past was: here the inputs' own first ticks, however few."""
    past = series_of(inputs).part(0, max(1, inputs.up.shape[1] // 4))
    found = simulate(inputs, policy_from(past, inputs), GuardMode.EXACT)
    assert not found.late.any()
    assert np.isfinite(found.usd).all()


def test_one_zone_alone() -> None:
    inputs = SimulationInputs.of(Task(3600, 7200, 60), memoryless(2, 50, 1), [0])
    with pytest.raises(ValueError, match="one zone"):
        ChainPolicy.fitted(series_of(inputs), inputs)
