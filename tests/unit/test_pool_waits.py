"""Waits for machines: their sums beside drawn ones, their means beside integrals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from router.jobs.pool_waits import (
    PHASES,
    WAIT_POINTS,
    counts_within,
    mean_square_wait_within,
    mean_wait_within,
    return_rates,
    sums_within,
)
from router.jobs.renewals import COUNTS
from tests.support.guarded_runs import draw_waits

ALL = len(COUNTS)
MEAN = 1.5


def test_the_phases_are_a_distribution_of_mean_one() -> None:
    assert sum(share for share, _ in PHASES) == pytest.approx(1)
    assert sum(share * mean for share, mean in PHASES) == pytest.approx(1, abs=1e-9)
    assert sum(weight for _, weight in WAIT_POINTS) == pytest.approx(1)
    assert sum(wait * weight for wait, weight in WAIT_POINTS) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("count", [1, 2, 5, 12, 40, 128])
def test_sums_beside_drawn_ones(count: int) -> None:
    draws = 40_000
    drawn = sum(draw_waits(MEAN, draws, np.random.default_rng([7, i])) for i in range(count))
    for hours in (0.1, 1.0, 5.0, 20.0, 100.0, 300.0):
        found = sums_within(np.full(ALL, hours), MEAN, ALL)[list(COUNTS).index(count)]
        assert found == pytest.approx(np.mean(drawn <= hours), abs=0.01)


def test_sums_rise_with_hours_and_fall_with_the_count() -> None:
    hours = np.geomspace(0.01, 5000.0, 60)
    found = sums_within(np.repeat(hours[:, None], ALL, axis=1), MEAN, ALL)
    assert (np.diff(found, axis=0) >= -1e-6).all()
    assert (np.diff(found, axis=1) <= 1e-4).all()
    assert found[-1].tolist() == pytest.approx([1.0] * ALL, abs=1e-3)


def test_no_time_holds_no_wait_and_no_wait_needs_no_time() -> None:
    assert sums_within(np.array([-1.0, 0.0]), MEAN, 2).tolist() == [0.0, 0.0]
    assert sums_within(np.array([-1.0, 0.0]), 0.0, 2).tolist() == [0.0, 1.0]


def test_counts_that_matter() -> None:
    for hours in (0.5, 3.0, 10.0, 60.0):
        likely = sums_within(np.full(ALL, hours), MEAN, ALL)
        last = int(counts_within(np.array(hours), MEAN))
        assert likely[last:].max(initial=0.0) < 1e-3
        assert last == ALL or likely[last - 2] > 1e-3
    assert counts_within(np.array(math.inf), MEAN) == ALL


def test_returns_by_age_beside_drawn_waits() -> None:
    drawn = draw_waits(MEAN, 200_000, np.random.default_rng(5))
    edges = (0.0, 0.5, 2.0, 8.0, math.inf)
    for begin, end, rate in zip(edges, edges[1:], return_rates(edges[:-1], MEAN), strict=False):
        ended = np.sum((drawn > begin) & (drawn <= end))
        watched = np.maximum(np.minimum(drawn, end) - begin, 0.0).sum()
        assert rate == pytest.approx(ended / watched, rel=0.05)


@pytest.mark.parametrize("hours", [0.1, 2.0, 30.0, math.inf])
def test_means_of_waits_that_are_cut_off(hours: float) -> None:
    drawn = np.minimum(draw_waits(MEAN, 400_000, np.random.default_rng(3)), hours)
    assert mean_wait_within(np.array(hours), MEAN) == pytest.approx(drawn.mean(), rel=0.02)
    if math.isfinite(hours):
        assert mean_square_wait_within(np.array(hours), MEAN) == pytest.approx((drawn**2).mean(), rel=0.05)
