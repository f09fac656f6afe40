"""Intervals of means of groups."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.availability.calibration import bootstrap_interval


def test_values_of_their_own_have_the_usual_interval() -> None:
    values = np.random.default_rng(1).normal(3, 2, 400)
    found = bootstrap_interval(values, np.arange(400))
    half = 1.645 * values.std() / 20
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)
    assert 300 < found.effective <= 400


def test_values_that_are_alike_in_a_group_count_once() -> None:
    values = np.repeat(np.random.default_rng(2).normal(size=30), 10)
    found = bootstrap_interval(values, np.repeat(np.arange(30), 10))
    assert found.effective == pytest.approx(30, rel=0.15)
    assert found == bootstrap_interval(values, np.repeat(np.arange(30), 10))


def test_one_group_and_none() -> None:
    assert bootstrap_interval(np.array([1.0, 3.0]), np.array([0, 0])).effective == 1
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval(np.array([]), np.array([], dtype=np.int64))
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval(np.ones(2), np.zeros(3, dtype=np.int64))
