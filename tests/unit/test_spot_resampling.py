"""Availability made of pieces of real availability."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.availability.evaluation_blocks import resample_ticks
from router.spot.availability.hazard_model import ages_h

TICK_S = 600


def availability(ticks: int, zones: int = 2) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    rng = np.random.default_rng(1)
    return (np.cumsum(rng.random((zones, ticks)) < 0.08, axis=1) % 2).astype(bool)


def test_pieces_are_real_ticks_of_the_block_in_their_order() -> None:
    up = availability(400)
    found = resample_ticks(
        up, ages_h(up, TICK_S), range(100, 300), np.full(200, 150), 90, 30.0, np.random.default_rng(2)
    )
    assert found.shape == (200, 90)
    assert found.min() >= 100
    assert found.max() < 300
    assert (np.diff(found, axis=1) != 1).mean() == pytest.approx(1 / 30, abs=0.01)
    assert (found[:, 0] == 151).mean() > 0.9


def test_seams_change_no_availability_that_did_not_change() -> None:
    up = availability(2000, zones=1)
    found = resample_ticks(up, ages_h(up, TICK_S), range(2000), np.full(50, 900), 500, 5.0, np.random.default_rng(3))
    real = (up[0, 1:] != up[0, :-1]).mean()
    played = up[0][found]
    assert (played[:, 1:] != played[:, :-1]).mean() == pytest.approx(real, rel=0.15)


def test_it_goes_on_where_the_block_ends_and_may_start_just_before_it() -> None:
    up = availability(60)
    found = resample_ticks(up, ages_h(up, TICK_S), range(50, 53), np.array([49]), 20, 1e9, np.random.default_rng(4))
    assert found[0, :3].tolist() == [50, 51, 52]
    assert set(found[0].tolist()) <= {50, 51, 52}


def test_a_block_of_one_tick_is_refused() -> None:
    up = availability(10)
    with pytest.raises(ValueError, match="two ticks"):
        resample_ticks(up, ages_h(up, TICK_S), range(5, 6), np.array([5]), 3, 10.0, np.random.default_rng(5))
