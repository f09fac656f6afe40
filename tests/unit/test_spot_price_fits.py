"""Prices that moved: our policy reckons with those of the moment, and waits for none that is gone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.config.trace_files import read_traces
from router.spot.availability.calibration import bootstrap_interval
from router.spot.availability.hazard_model import HazardModel
from router.spot.policies import action_values
from router.spot.policies.action_values import PriceFits
from router.spot.policies.foresight import ForesightModel
from router.spot.policies.foresight_policies import BlindForesightPolicy, ForesightPolicy
from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.our_policy import policy_from
from router.spot.policies.published.baselines import GreedySpot, UniformProgress, rank_by_price_elsewhere
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task
from router.spot.simulator.simulation import FullInfoPolicy, GuardMode, SimulationOutcome, simulate
from router.spot.simulator.traces import Floats, Series
from tests.bench.cells import PROBED, STEPS, THREE, WORK_ZONES_S, Apart, stepped
from tests.bench.probes import RESTART_S
from tests.support.made_up_windows import made_up
from tests.support.repository import ROOT
from tests.support.spot_windows import known_hazards, series_of

DEMAND = 3.06
USUAL = np.array([1.218, 1.0, 0.95])
RISEN = np.array([1.365, 1.0, 0.95])
LATER = [USUAL * step for step in (1.12, 0.9)] + [RISEN]


def availability(zones: int = 3, windows: int = 60) -> tuple[HazardModel, SimulationInputs]:
    outlook = known_hazards(np.array([0.3, 0.2, 0.5][:zones]), np.array([0.3, 0.15, 0.1][:zones]), 200.0)
    task = Task(8 * HOUR_S, 10 * HOUR_S, 720)
    return outlook, made_up(outlook, task, 600, USUAL[:zones].tolist(), [DEMAND] * zones, windows)


def at(inputs: SimulationInputs, usd: Floats) -> SimulationInputs:
    """The same availability at these prices."""
    return replace(inputs, spot_usd=np.broadcast_to(usd[:, None], inputs.spot_usd.shape))


def played(inputs: SimulationInputs, policy: FullInfoPolicy) -> SimulationOutcome:
    found = simulate(inputs, policy, GuardMode.EXACT)
    assert not found.late.any()
    return found


@pytest.mark.parametrize("usd", LATER, ids=["up", "down", "one"])
def test_a_price_that_has_moved_counts_as_if_it_had_always_been_that(usd: Floats) -> None:
    """Dollars of each window are those of who never knew another price, whether zones are seen or asked."""
    outlook, inputs = availability()
    later = at(inputs, usd)
    old, new = (played(later, ForesightPolicy.fitted(outlook, like)).usd for like in (inputs, later))
    assert old.tolist() == new.tolist()
    terms = inputs.spec
    asked = [
        simulate_blind(later, BlindForesightPolicy.fitted(outlook, terms, p), GuardMode.EXACT).usd for p in (USUAL, usd)
    ]
    assert asked[0].tolist() == asked[1].tolist()


@pytest.mark.parametrize("step", [1.25, 0.5, 2.0])
def test_so_it_is_in_one_zone_alone(step: float) -> None:
    _, inputs = availability(1)
    series = series_of(inputs)
    scaled = series.zones[0].spot_usd_per_hour * step
    dear = replace(series, zones=(replace(series.zones[0], spot_usd_per_hour=scaled),))
    later = at(inputs, USUAL[:1] * step)
    old, new = (played(later, policy_from(past, inputs)).usd for past in (series, dear))
    assert old.tolist() == new.tolist()


def shifted(series: Series, task: Task, every_s: int) -> dict[str, SimulationInputs]:
    """Windows of the later half by what moved there, "" nothing."""
    half = series.ticks // 2
    last = series.ticks - task.ticks(series.tick_s)
    worlds = {"": series} | {
        f"{zone.zone} x {step}": stepped(series, zone.zone, step) for zone in series.zones for step in STEPS
    }
    ways = Apart(50.0).ways(series)
    starts = np.arange(half, last, every_s // series.tick_s)
    return {name: SimulationInputs.of(task, one, starts, ways) for name, one in worlds.items()}


def shift_costs(series: Series, task: Task, every_s: int) -> float:
    """What shifts cost in the mean, as a share of the optimum; in no world do we lose to Greedy or UP(S), at 90 %."""
    over, less = dict[str, float](), dict[str, list[Floats]]()
    worlds = shifted(series, task, every_s)
    # Prices move half way: what is learned before it is the same in all worlds.
    policy = policy_from(series.part(0, series.ticks // 2), worlds[""])
    for name, inputs in worlds.items():
        ours = played(inputs, policy).usd
        over[name] = ours.mean() / compute_least_usd(inputs).mean() - 1
        for other in (GreedySpot(), UniformProgress(ranking=rank_by_price_elsewhere)):
            less.setdefault(type(other).__name__, []).append(ours - simulate(inputs, other).usd)
    stretch = inputs.starts // inputs.ticks
    for rival, differences in less.items():
        for one in differences:
            assert bootstrap_interval(one, stretch).low <= 0, rival
        assert np.mean(differences) < 0, rival
    return float(np.mean([value for name, value in over.items() if name])) - over[""]


@pytest.mark.slow
def test_a_tenth_more_or_less_in_any_zone_costs_little_in_made_up_availability() -> None:
    series = read_traces(ROOT / "examples" / "traces")
    assert shift_costs(series, Task(24 * HOUR_S, 36 * HOUR_S, 720), 12 * HOUR_S) <= 0.02


@pytest.mark.slow
@pytest.mark.skipif(not PROBED.is_dir(), reason="the shared data are not here")
def test_nor_does_it_in_recorded_availability() -> None:
    """Eleven days hold six windows or so apart: at one ratio of time to work alone chance is worth more than two
    points, and windows begin every six hours."""
    series = read_traces(PROBED).only(THREE)
    costs = []
    for ratio in (1.1, 1.25, 1.5):
        ticks = round(WORK_ZONES_S * ratio / series.tick_s)
        costs.append(shift_costs(series, Task(WORK_ZONES_S, ticks * series.tick_s, RESTART_S), 6 * HOUR_S))
    assert np.mean(costs) <= 0.02, costs


def test_a_fit_serves_until_a_price_has_moved_by_two_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    outlook, inputs = availability()
    fits = PriceFits(ForesightPolicy.fitted(outlook, inputs).model)
    made: list[list[float]] = []
    at_prices = ForesightModel.at_prices

    def note(model: ForesightModel, usd: Floats) -> ForesightModel:
        made.append(usd.tolist())
        return at_prices(model, usd)

    monkeypatch.setattr(ForesightModel, "at_prices", note)
    steps = [1.0, 1.019, 1.021, 1.038, 1.0, 0.981, 1.021 * 1.021, 1.0]
    fit, found = np.array([-1]), []
    for step in steps:
        fit = fits.fits((USUAL * [step, 1.0, 1.0])[:, None], fit)
        found.append(int(fit[0]))
    assert found == [0, 0, 1, 1, 0, 0, 2, 0]
    assert made == [[USUAL[0] * 1.021, 1.0, 0.95], [USUAL[0] * (1.021 * 1.021), 1.0, 0.95]]
    for which, usd in ((1, made[0]), (2, made[1])):
        assert fits[which].model.market.spot_usd.tolist() == usd


def test_prices_that_are_nowhere_for_long_get_the_nearest_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_values, "MOST", 3)
    outlook, inputs = availability()
    fits = PriceFits(ForesightPolicy.fitted(outlook, inputs).model)
    usd = USUAL[:, None] * np.array([1.0, 1.1, 1.2, 1.3, 1.02, 9.0])
    assert fits.fits(usd, np.full(6, -1)).tolist() == [0, 1, 2, 2, 0, 2]
    assert len(fits.weighers) == 3
