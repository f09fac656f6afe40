"""Whether quotes held, and quotes made to hold."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.availability.calibration import (
    CURVE,
    KNOTS,
    LEVELS,
    PitIntervals,
    Recalibration,
    assess_calibration,
    bootstrap_interval,
    interval_widths,
    measure_coverage,
    sharpness_loss,
)

RNG = np.random.default_rng(1)
N = 4000


def of(sigma: float, bias: float = 0.0) -> PitIntervals:
    """Quotes of a normal, outcomes of a wider or shifted one."""
    quoted = np.random.default_rng(2).normal(size=(N, 200))
    return PitIntervals.of(quoted, np.random.default_rng(3).normal(bias, sigma, N))


def test_a_true_quote_holds_as_often_as_it_says() -> None:
    places = of(1.0)
    for covered in measure_coverage(places, np.arange(N)):
        assert covered.held.mean == pytest.approx(covered.level, abs=0.02)
        assert covered.is_in
        assert covered.off == covered.held.mean - covered.level
        assert covered.count == N
    assert places.histogram() == pytest.approx(0.1, abs=0.015)


def test_an_overconfident_quote_shows_a_u() -> None:
    places = of(2.0)
    bars = places.histogram()
    assert bars[0] > 0.2 < bars[-1]
    assert not measure_coverage(places, np.arange(N))[-1].is_in
    assert bars.sum() == pytest.approx(1)


def test_ties_count_in_part() -> None:
    quoted = np.array([1.0, 1, 1, 1, 2, 2, 3, 3, 3, 4])
    places = PitIntervals.of(quoted, np.array([1.0, 2.0, 4.0, 0.0, 9.0]))
    assert places.below == pytest.approx([0, 0.4, 0.9, 0, 0.95])
    assert places.up_to == pytest.approx([0.4, 0.6, 1, 0.05, 1])
    assert places.within(0.5) == pytest.approx([1, 0.5, 0, 1, 0])
    assert places.within(0.0) == pytest.approx(0)
    assert places.within(1.0) == pytest.approx(1)


def test_all_the_same_and_true_is_calibrated() -> None:
    places = PitIntervals.of(np.full(50, 7.3), np.full(100, 7.3 + 1e-12))
    assert [c.held.mean for c in measure_coverage(places, np.arange(100))] == pytest.approx(LEVELS)


def test_shares_that_cannot_be_are_refused() -> None:
    for below, up_to in ((0.6, 0.5), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValueError, match="share"):
            PitIntervals(np.array([below]), np.array([up_to]))


def test_width_and_loss() -> None:
    even = np.linspace(0, 1, 1001)[None]
    assert interval_widths(even) == pytest.approx(0.8)
    assert sharpness_loss(even, np.array([0.5])) == pytest.approx(1 / 12, abs=1e-3)
    assert sharpness_loss(np.full((1, 5), 2.0), np.array([3.5])) == pytest.approx(1.5)
    outcomes = RNG.normal(size=500)
    true, wide = (sharpness_loss(RNG.normal(0, s, (500, 400)), outcomes).mean() for s in (1.0, 3.0))
    assert true < wide


def test_a_judgement_carries_all_of_it() -> None:
    outcomes = RNG.normal(10, 1, N)
    judged = assess_calibration("a", "cost", RNG.normal(10, 1, (N, 100)), outcomes, np.arange(N))
    assert (judged.name, judged.what, judged.count) == ("a", "cost", N)
    assert judged.curve == pytest.approx(CURVE, abs=0.03)
    assert judged.plain == pytest.approx(LEVELS, abs=0.03)
    assert judged.width == pytest.approx(0.256, abs=0.01)
    with pytest.raises(ValueError, match="as many quotes"):
        assess_calibration("a", "cost", np.ones((2, 3)), np.ones(3), np.arange(3))
    with pytest.raises(ValueError, match="as many quotes"):
        assess_calibration("a", "cost", np.ones((0, 3)), np.ones(0), np.arange(0))


def test_what_was_learned_makes_later_quotes_hold() -> None:
    calibrating = Recalibration.learned(of(1.8, bias=0.5), np.arange(N))
    quoted = calibrating.quoted(np.random.default_rng(4).normal(size=(N, 200)))
    outcomes = np.random.default_rng(5).normal(0.5, 1.8, N)
    for covered in measure_coverage(PitIntervals.of(quoted, outcomes), np.arange(N))[:2]:
        assert covered.held.mean == pytest.approx(covered.level, abs=0.03)


def test_few_outcomes_move_it_little_and_none_not_at_all() -> None:
    places = of(1.0, bias=0.7)
    many = Recalibration.learned(places, np.arange(N)).level(np.array([0.5]))[0]
    few = Recalibration.learned(places, np.arange(N) % 3).level(np.array([0.5]))[0]
    assert many > few > 0.5
    assert (
        Recalibration.learned(PitIntervals(np.array([]), np.array([])), np.array([], dtype=np.int64)) == Recalibration()
    )
    alike = Recalibration.learned(of(0.01, bias=9.0), np.arange(N) % 3).level(np.array([0.5]))[0]
    assert alike < 0.9  # that all agree is no proof where they are three
    values = RNG.normal(size=(3, 40))
    assert Recalibration().quoted(values) == pytest.approx(np.sort(values, axis=1))


def test_shares_that_do_not_grow_are_refused() -> None:
    for held in ((0.0, 1.0), (0.1, *KNOTS[1:]), (0.0, *[0.5] * (len(KNOTS) - 2), 1.0)):
        with pytest.raises(ValueError, match="grow"):
            Recalibration(tuple(float(h) for h in held))


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
