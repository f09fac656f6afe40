"""Hazards and chains against availability whose odds are known."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.availability.hazards import (
    AvailabilityChain,
    AvailabilitySignals,
    ChainShape,
    LogisticHazards,
    iterate_signals,
)
from router.spot.simulator.traces import Bools

TICK_S = 600


def flips(rng: np.random.Generator, zones: int, ticks: int, fall: float, rise: float) -> Bools:
    """Availability without memory."""
    up = np.zeros((zones, ticks), dtype=bool)
    for i in range(1, ticks):
        change = rng.random(zones) < np.where(up[:, i - 1], fall, rise)
        up[:, i] = up[:, i - 1] ^ change
    return up


def test_signals_by_hand() -> None:
    seen = AvailabilitySignals.unseen((2,), 0.5)
    for up in ([True, False], [True, True], [False, True]):
        seen.see(np.array(up), 3600)
    assert seen.age_h.tolist() == [1, 2]
    assert seen.up.tolist() == [False, True]
    kept = np.exp(-1 / 8)
    assert seen.fast[1] == pytest.approx(((0.5 * kept) * kept + 1 - kept) * kept + 1 - kept)
    before = seen.age_h.copy()
    seen.see(np.array([True, True]), 3600, np.array([False, True]))
    assert seen.age_h.tolist() == [before[0], 3]


def test_history_pairs_each_tick_with_the_next() -> None:
    up = np.array([[True, True, False, False]])
    assert [(bool(s.up[0]), bool(then[0])) for s, then in iterate_signals(up, TICK_S)] == [
        (True, True),
        (True, False),
        (False, False),
    ]


def test_learns_what_has_no_memory() -> None:
    up = flips(np.random.default_rng(1), 6, 3000, 0.03, 0.08)
    chain = AvailabilityChain.of(LogisticHazards.of([up], TICK_S))
    middle = chain.change[1:3, :, 1:5, 1:4]
    assert middle[:, 1].mean() == pytest.approx(0.03, rel=0.3)
    assert middle[:, 0].mean() == pytest.approx(0.08, rel=0.3)


def test_without_a_past_it_is_even_odds_or_less() -> None:
    assert (AvailabilityChain.of(LogisticHazards.of([], TICK_S)).change < 0.5).all()


def test_means_over_the_next_state() -> None:
    chain = AvailabilityChain.of(
        LogisticHazards.of([flips(np.random.default_rng(4), 3, 500, 0.1, 0.1)], TICK_S), ChainShape(ages=(1, 2, 4))
    )
    ones = np.ones(chain.change.shape, dtype=np.float32)
    assert np.allclose(chain.expect(ones), 1)
    up = ones.copy()
    up[:, 0] = 0
    assert np.allclose(chain.expect(up)[:, 1], 1 - chain.change[:, 1], atol=1e-6)
    assert np.allclose(chain.expect(up)[:, 0], chain.change[:, 0], atol=1e-6)
    # right on average: the fast signal after a tick, where it stays as it is
    fast = ones * np.array(chain.shape.levels, dtype=np.float32)
    kept = float(np.exp(-TICK_S / 3600 / 8))
    assert np.allclose(chain.next_if(fast)[0][:, 0], fast[:, 0] * kept, atol=1e-6)


def test_signals_lie_between_states() -> None:
    chain = AvailabilityChain.of(LogisticHazards.of([], TICK_S))
    seen = AvailabilitySignals(np.array([True]), np.array([1.0]), np.array([0.3]), np.array([0.5]))
    classes, ups, ages, levels, weights = chain.corners(seen)
    assert weights.sum() == pytest.approx(1)
    assert (np.array(chain.shape.levels)[levels] * weights).sum() == pytest.approx(0.3)
    assert (np.array(chain.shape.classes)[classes] * weights).sum() == pytest.approx(0.5)
    assert (ups == 1).all()
    assert (np.array(chain.shape.ages)[ages] == 8).all()  # six ticks
