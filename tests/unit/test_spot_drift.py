"""Drift learned from the past."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from router.spot.availability.calibration import Recalibration
from router.spot.availability.fit import (
    GRID,
    AvailabilityFit,
    DriftingHazardModel,
    _state_log_likelihood,
    learn_drift,
)
from router.spot.availability.hazard_model import CLASSES, HazardModel, ages_h
from router.spot.simulator.traces import Bools, Floats

TICK_S = 600
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SIZES = np.array([s.size for s in GRID])
COMMON = np.array([s.common for s in GRID])


def made(size: float, common: float, seed: int, zones: int = 6, days: int = 40) -> Bools:
    """Days of availability, each with hazards around one a third of an hour, exp(x) times as large."""
    rng = np.random.default_rng(seed)
    state, found = rng.random(zones) < 0.5, []
    for _ in range(days):
        x = size * (np.sqrt(common) * rng.normal(size=(2, 1)) + np.sqrt(1 - common) * rng.normal(size=(2, zones)))
        leave = -np.expm1(-(1 / 3) * np.exp(x) * TICK_S / 3600)
        for _ in range(24 * 3600 // TICK_S):
            state = state ^ (rng.random(zones) < np.where(state, leave[1], leave[0]))
            found.append(state)
    return np.array(found).T


def expected(fit: DriftingHazardModel, of: Floats) -> float:
    return float(np.mean([np.array(p) @ of for p in fit.likely]))


def test_steady_availability_has_little_drift_and_wandering_availability_has_much() -> None:
    steady, wandering = learn_drift(made(0.0, 0.5, 1), TICK_S), learn_drift(made(1.0, 0.5, 1), TICK_S)
    assert expected(steady, SIZES) < 0.3
    # the classes of age tell a part of it: short times are of bad days
    assert 0.35 < expected(wandering, SIZES) < 1.0
    assert steady.drift == pytest.approx(expected(steady, SIZES))


def test_frailty_is_found_where_nothing_else_tells_it() -> None:
    rng = np.random.default_rng(1)
    expected_events = np.full((60, 6), 4.0)
    for size, common in ((1.0, 0.4), (0.5, 0.7), (1.0, 0.1)):
        shared, own = rng.normal(size=(60, 1)), rng.normal(size=(60, 6))
        x = size * (np.sqrt(common) * shared + np.sqrt(1 - common) * own)
        seen = rng.poisson(expected_events * np.exp(x)).astype(np.float64)
        log = _state_log_likelihood(seen, expected_events, np.full((60, 6), 500.0))
        weight = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
        assert weight @ SIZES == pytest.approx(size, rel=0.25)
        assert weight @ COMMON == pytest.approx(common, abs=0.2)


def test_what_all_zones_share_is_told_from_what_is_their_own() -> None:
    assert expected(learn_drift(made(1.0, 0.95, 2), TICK_S), COMMON) > 0.7
    assert expected(learn_drift(made(1.0, 0.0, 2), TICK_S), COMMON) < 0.3


def test_a_short_past_leaves_the_grid_as_it_is() -> None:
    fit = learn_drift(made(0.5, 0.5, 3, days=1), TICK_S)
    assert np.array(fit.likely) == pytest.approx(1 / len(GRID))
    assert fit.events.shape == (6, 2, CLASSES)


def test_rates_are_those_of_an_outlook() -> None:
    up = made(0.5, 0.5, 4, days=20)
    fit, plain = learn_drift(up, TICK_S), HazardModel.seen(up, TICK_S)
    assert fit.hours == pytest.approx(plain.hours)
    assert fit.events == pytest.approx(plain.events)


def test_draws_have_the_size_that_is_likely() -> None:
    hours = np.full((400, 2, CLASSES), 1e9)
    at = GRID.index((1.0, 0.4))
    likely = tuple(float(i == at) for i in range(len(GRID)))
    x = np.log(
        DriftingHazardModel(hours.copy(), hours, 1.0, likely=(likely, likely)).draw(300, np.random.default_rng(1))
    )
    assert x.shape == (300, 400, 2, CLASSES)
    assert x[..., 0].std() == pytest.approx(1.0, abs=0.05)
    assert x[..., 0].mean(axis=1).std() == pytest.approx(np.sqrt(0.4), abs=0.06)
    assert x[..., 0] == pytest.approx(x[..., 1], abs=1e-3)


def test_losses_are_drawn_as_unsure_as_their_level_and_returns_are_not() -> None:
    """A zone's level is common to all ages. Its factor has mean 1: draws keep the expected rate."""
    hours = np.full((400, 2, CLASSES), 1e9)
    still = tuple(float(i == 0) for i in range(len(GRID)))
    spread = tuple(0.8 if i < 200 else 0.0 for i in range(400))
    drawn = DriftingHazardModel(hours.copy(), hours, GRID[0].size, spread, (still, still)).draw(
        400, np.random.default_rng(1)
    )
    x = np.log(drawn)
    assert x[:, :200, 1].std() == pytest.approx(np.hypot(0.8, GRID[0].size), abs=0.03)
    assert x[:, 200:, 1].std() == pytest.approx(GRID[0].size, abs=0.02)
    assert x[:, :, 0].std() == pytest.approx(GRID[0].size, abs=0.02)
    assert x[..., 0] == pytest.approx(x[..., -1], abs=1e-3)
    assert drawn[:, :200, 1].mean() / drawn[:, 200:, 1].mean() == pytest.approx(1.0, abs=0.03)
    own = x[:, :200, 1, 0] - x[:, :200, 1, 0].mean(axis=1, keepdims=True)
    assert own.std() > 0.75, "each zone has a level of its own"


def test_a_learned_drift_keeps_what_is_not_known_of_losses() -> None:
    likely = tuple(1 / len(GRID) for _ in GRID)
    kept = Recalibration()
    fit = AvailabilityFit(NOW, NOW, 6, 1.0, (likely, likely), kept, kept, 9)
    model = HazardModel(np.ones((3, 2, CLASSES)), np.ones((3, 2, CLASSES)), spread=(0.3, 0.6, 0.9))
    found = fit.drifting(model)
    assert isinstance(found, DriftingHazardModel)
    assert found.spread == (0.3, 0.6, 0.9)
    assert found.only(np.array([2, 0])).spread == (0.9, 0.3)


def test_some_zones_of_it_keep_their_drift() -> None:
    fit = learn_drift(made(0.7, 0.5, 6, days=10), TICK_S)
    part = fit.only(np.array([2, 4]))
    assert isinstance(part, DriftingHazardModel)
    assert part.likely == fit.likely
    assert part.draw(3, np.random.default_rng(1)).shape == (3, 2, 2, CLASSES)


def test_ages_count_the_tick_itself() -> None:
    up = np.array([[1, 1, 0, 0, 0, 1]], dtype=bool)
    assert ages_h(up, 1800).tolist() == [[0.5, 1.0, 0.5, 1.0, 1.5, 0.5]]
