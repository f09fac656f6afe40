"""Foresight against the optimum of a small problem, and against what is published, on made-up availability."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from router.spot.availability.hazard_model import CLASSES, HazardModel
from router.spot.policies.foresight import shift_matrix, slack_grid
from router.spot.policies.foresight_policies import (
    BlindForesightPolicy,
    ForesightPolicy,
    _condition_on_answers,
    choose_clock_s,
)
from router.spot.policies.published.baselines import GreedySpot, UniformProgress
from router.spot.policies.regression_features import advance_belief, encode_states
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import (
    ON_DEMAND,
    SPOT,
    FullInfoPolicy,
    FullView,
    GuardMode,
    SimulationOutcome,
    simulate,
)
from router.spot.simulator.traces import Floats, Ints
from tests.support.spot_windows import known_hazards, made_up, series_of

HOURLY = 3600
DEMAND = 3.0


def sure(lost: list[float], back: list[float]) -> HazardModel:
    """Hazards that are known."""
    return known_hazards(np.array(lost), np.array(back), 1e6, drift=0.0)


def played(inputs: SimulationInputs, policy: FullInfoPolicy) -> SimulationOutcome:
    found = simulate(inputs, policy, GuardMode.EXACT)
    assert not found.late.any()
    return found


def dearer_by(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """Mean of what theirs costs more, window by window, and its standard error."""
    more = theirs - ours
    return float(more.mean()), float(more.std() / np.sqrt(more.size))


# a launch of a tick and a half: half ticks are counted
_WORK, _DELAY, _TICK = 24, 3, 2


def optimum(lost: float, back: float, spot_usd: float, ticks: int, hours: float) -> float:
    """Expected dollars of the best that is never late, one zone, memoryless spot: all tried from the last tick back.
    It shares nothing with what it is to check."""
    gone, again = -np.expm1(-lost * hours), -np.expm1(-back * hours)

    @cache
    def runs(left: int, work: int, kind: str, delay: int, up: bool) -> float:
        """A tick of it, then the best."""
        usd = (spot_usd if kind == "spot" else DEMAND) * hours
        work -= max(0, _TICK - delay)
        return usd if work <= 0 else usd + later(left - 1, work, kind, max(0, delay - _TICK), up)

    @cache
    def later(left: int, work: int, kind: str, delay: int, up: bool) -> float:
        chance = (1 - gone) if up else again
        return float(sum(p * best(left, work, kind, delay, now) for p, now in ((chance, True), (1 - chance, False))))

    @cache
    def best(left: int, work: int, kind: str, delay: int, up: bool) -> float:
        if left == 0:
            return np.inf
        if kind == "spot" and not up:
            kind, delay = "idle", 0
        choices = [later(left - 1, work, "idle", 0, up)]
        others = ("demand", "spot") if up else ("demand",)
        choices += [runs(left, work, other, delay if other == kind else _DELAY, up) for other in others]
        return min(choices)

    usual = again / (again + gone)
    return float(usual * best(ticks, _WORK, "idle", 0, True) + (1 - usual) * best(ticks, _WORK, "idle", 0, False))


@pytest.mark.parametrize(
    ("lost", "back", "spot_usd", "ticks"),
    [(0.3, 0.5, 1.0, 18), (0.1, 0.1, 1.0, 24), (1.0, 1.5, 1.2, 20), (0.5, 0.2, 0.6, 14)],
)
def test_a_small_problem_costs_hardly_more_than_the_optimum(
    lost: float, back: float, spot_usd: float, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.spot.availability.hazard_model.SWING", 0.0)
    tick_s, outlook = 1200, sure([lost], [back])
    task = Task(_WORK * tick_s // _TICK, ticks * tick_s, _DELAY * tick_s // _TICK)
    inputs = made_up(outlook, task, tick_s, [spot_usd], [DEMAND], 3000)
    found = played(inputs, ForesightPolicy.fitted(outlook, inputs)).usd
    least, error = optimum(lost, back, spot_usd, ticks, tick_s / HOUR_S), found.std() / np.sqrt(found.size)
    assert least - 4 * error - 1e-6 < found.mean() < 1.05 * least + 2 * error


def several(zones: int, windows: int = 400, **more: object) -> tuple[HazardModel, SimulationInputs]:
    outlook = sure([0.3, 0.15, 0.6][:zones], [0.3, 0.1, 0.5][:zones])
    task = Task(8 * HOURLY, 12 * HOURLY, 600)
    made = made_up(outlook, task, 600, [1.0, 1.2, 0.9][:zones], [DEMAND] * zones, windows)
    return outlook, replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("zones", [2, 3])
def test_it_costs_less_than_what_is_published(zones: int) -> None:
    outlook, inputs = several(zones, ways=ZoneMoveCosts.between(["a", "b", "c"][:zones], lambda _a, _b: 0.1, 60))
    ours = played(inputs, ForesightPolicy.fitted(outlook, inputs)).usd
    asking = simulate_blind(
        inputs,
        BlindForesightPolicy.fitted(outlook, inputs.spec, inputs.spot_usd[:, 0]),
        GuardMode.EXACT,
    )
    assert not asking.late.any()
    assert not asking.probes.any()
    assert 0.99 < asking.usd.mean() / ours.mean() < 1.15  # who sees knows more
    for theirs in (UniformProgress(False), GreedySpot()):
        by, error = dearer_by(ours, played(inputs, theirs).usd)
        assert by > 3 * error, theirs


def spot_ticks_by_zone(inputs: SimulationInputs, policy: FullInfoPolicy) -> tuple[Ints, int]:
    """[zone], and how often the checkpoint left its zone."""
    ticks, homes, moves = np.zeros(len(inputs.zones), dtype=np.int64), np.full(inputs.starts.size, -1), 0

    def watch(now: FullView) -> None:
        nonlocal moves
        np.add.at(ticks, now.zone[now.kind == SPOT], 1)
        moves += int(((homes[now.window] >= 0) & (homes[now.window] != now.home)).sum())
        homes[now.window] = now.home

    assert not simulate(inputs, policy, GuardMode.EXACT, watch=watch).late.any()
    return ticks, moves


def test_egress_makes_it_move_less() -> None:
    moves = []
    for usd in (0.0, 1.0, 50.0):
        outlook, inputs = several(3, ways=ZoneMoveCosts(usd * (1 - np.eye(3)), np.zeros((3, 3), dtype=np.int64)))
        moves.append(spot_ticks_by_zone(inputs, ForesightPolicy.fitted(outlook, inputs))[1])
    assert moves[0] > 1.5 * moves[1] > 0
    assert moves[2] == 0


def test_it_does_not_go_where_spot_is_dear() -> None:
    """Whether that was expected or not."""
    outlook, inputs = several(2)
    usual, _ = spot_ticks_by_zone(inputs, ForesightPolicy.fitted(outlook, inputs))
    prices = inputs.spot_usd.copy()
    prices[1] = 0.99 * DEMAND
    dear = replace(inputs, spot_usd=prices)
    for like in (inputs, dear):
        ticks, _ = spot_ticks_by_zone(dear, ForesightPolicy.fitted(outlook, like))
        assert usual[1] > 20 * ticks[1]


def test_slow_and_cheap_on_demand_is_taken_where_there_is_time_for_it() -> None:
    """A half of the speed at a quarter of the price: 20 hours of it instead of ten."""
    outlook = sure([5.0, 5.0], [1e-6, 1e-6])
    speed = np.array([1.0, 0.5])
    for deadline_h, usd, slow in ((24, 20 * 0.75, True), (11, 10 * DEMAND, False)):
        task = Task(10 * HOURLY, deadline_h * HOURLY, 600)
        made = made_up(outlook, task, 600, [1.0, 1.0], [DEMAND, DEMAND / 4], 50)
        inputs = SimulationInputs.of(task, series_of(made), made.starts, None, speed)
        found = played(inputs, ForesightPolicy.fitted(outlook, inputs))
        assert found.usd.mean() == pytest.approx(usd, rel=0.05)
        assert (found.on_demand_ticks.mean() > 115) == slow


def test_twice_as_fast_at_twice_the_price() -> None:
    """Both places cost no more than the better of them alone; and which is the first does not matter."""
    outlook, task = sure([0.3, 0.3], [0.4, 0.4]), Task(8 * HOURLY, 16 * HOURLY, 600)
    made = made_up(outlook, task, 600, [2.0, 1.0], [6.0, 3.0], 300)
    speed, names = np.array([1.0, 0.5]), list(made.zones)
    both = SimulationInputs.of(task, series_of(made), made.starts, None, speed)
    found = played(both, ForesightPolicy.fitted(outlook, both)).usd
    fast = SimulationInputs.of(task, series_of(made).only(names[:1]), made.starts)
    alone = played(fast, ForesightPolicy.fitted(outlook.only(np.array([0])), fast)).usd
    by, error = dearer_by(found, alone)
    assert by > 3 * error
    turned = SimulationInputs.of(task, series_of(made).only(names[::-1]), made.starts, None, speed[::-1])
    again = played(turned, ForesightPolicy.fitted(outlook.only(np.array([1, 0])), turned)).usd
    assert again.mean() == pytest.approx(found.mean(), rel=0.02)


def test_going_on_with_fast_on_demand_is_not_taken_for_slow() -> None:
    """Two speeds in one place, dollars of both known: what runs is weighed at its own."""
    outlook, task = sure([5.0, 5.0], [1e-6, 1e-6]), Task(10 * HOURLY, 11 * HOURLY, 600)
    made = made_up(outlook, task, 600, [1.0, 1.0], [DEMAND, DEMAND], 20)
    inputs = SimulationInputs.of(task, series_of(made), made.starts, None, np.array([1.0, 0.5]))
    kinds = []
    simulate(
        inputs,
        ForesightPolicy.fitted(outlook, inputs),
        GuardMode.NONE,
        watch=lambda now: kinds.append((now.kind, now.zone)),
    )
    assert all((zone[kind == ON_DEMAND] == 0).all() for kind, zone in kinds)


def test_the_same_seed_makes_the_same_tables() -> None:
    outlook, inputs = several(3, 2)
    one, two, other = (ForesightPolicy.fitted(outlook, inputs, seed).model.tables for seed in (5, 5, 6))
    for name in ("launch", "stay", "to_demand", "on_demand", "home"):
        assert (getattr(one, name) == getattr(two, name)).all()
    assert (one.stay != other.stay).any()


def test_nothing_to_fall_back_on_is_refused() -> None:
    outlook, inputs = several(2, 2)
    for wrong in ({"on_demand_usd": np.full(2, np.inf)}, {"speed": np.full(2, 0.5)}):
        with pytest.raises(ValueError, match="reference"):
            ForesightPolicy.fitted(outlook, replace(inputs, **wrong))  # type: ignore[arg-type]


def test_the_clock_is_of_whole_ticks() -> None:
    assert [choose_clock_s(tick_s) for tick_s in (60, 700, 1200, 3600)] == [1200, 700, 1200, 3600]


def test_the_grid_of_slack_has_what_is_scarce() -> None:
    grid = slack_grid(6 * HOURLY, 1200, 700.0)
    assert {0.0, 700.0, 1400.0, 1200.0, 2400.0} <= set(grid)
    assert grid[-1] >= 6 * HOURLY
    assert slack_grid(0.0, 1200, 0.0).tolist() == [0.0, 1200.0]
    values = 3 * grid + 1
    assert values @ shift_matrix(grid, 500.0) == pytest.approx(np.maximum(3 * (grid - 500) + 1, 1))


def test_beliefs_are_probabilities_and_come_to_what_is_usual() -> None:
    outlook = known_hazards(np.array([0.2, 0.9]), np.array([0.4, 0.1]), 10.0)
    sky = outlook.usual(1, np.random.default_rng(1))
    look = encode_states(sky)
    for _ in range(4000):
        look = advance_belief(look, outlook.mean(), 0.1)
        assert look.min() >= 0
    assert look.sum(axis=(-2, -1)) == pytest.approx(1.0)
    assert look[0, :, 1].sum(axis=-1) == pytest.approx([0.4 / 0.6, 0.1 / 1.0], rel=0.1)


def test_answers_are_believed() -> None:
    """The third zone was taken to be down for sure, and is up: a spell that is new."""
    look = np.full((1, 3, 2, CLASSES), 1 / (2 * CLASSES))
    look[0, 2] = 0.0
    look[0, 2, 0, 3] = 1.0
    _condition_on_answers(look, np.array([[True, False, True]]), np.array([[True, False, True]]))
    assert look.sum(axis=(-2, -1)) == pytest.approx(1.0)
    assert look[0, 0].tolist() == [[0.0] * CLASSES, [1 / CLASSES] * CLASSES]
    assert (look[0, 1] == 1 / (2 * CLASSES)).all()
    assert look[0, 2].tolist() == [[0.0] * CLASSES, [1.0, 0.0, 0.0, 0.0]]
