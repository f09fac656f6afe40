"""The interval between checkpoints and what is left of the speed: brute force, known figures, limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from router.jobs.goodput import (
    GangRunRisk,
    _above_branch,
    _finish_time,
    best_interval_hours,
    billed_share,
    expected_steps_per_hour,
    hours_with_probability,
    ndtr,
    on_time_probability,
    on_time_steps_per_hour,
    useful_share,
)

HOURLY = GangRunRisk(100.0, 0.05, 0.1, 1.5, 0.25, 1.0, 0.05, 0.0, True)


def test_nearly_no_interruptions_keep_all_digits() -> None:
    """Close to its branch point Lambert's W alone would lose them: 2e-16 under a square root."""
    for rate in (1e-6, 1e-9, 1e-12):
        assert best_interval_hours(rate, 1e-3, 0.0) == pytest.approx(math.sqrt(2e-3 / rate), rel=1e-3)


def test_the_interval_is_no_shorter_than_a_write_or_a_minute() -> None:
    assert best_interval_hours(2.0, 0.0, 0.0) == pytest.approx(1 / 60)
    assert best_interval_hours(2.0, 0.0, 0.4) == 0.4
    assert best_interval_hours(0.001, 0.05, 0.4) > 9


def test_useful_share_is_the_formula() -> None:
    """λτ / [(1 + λR)(exp(λ(τ + δ)) - 1)] with λ 0.1, τ 1, δ 0.05, R 1.75."""
    assert useful_share(HOURLY) == pytest.approx(0.1 / (1.175 * math.expm1(0.105)))
    assert expected_steps_per_hour(HOURLY) == pytest.approx(100 * useful_share(HOURLY))


def test_without_interruptions_only_the_stall_is_lost() -> None:
    calm = replace(HOURLY, interruptions_per_hour=1e-12)
    assert useful_share(calm) == pytest.approx(1 / 1.05)
    assert billed_share(calm) == pytest.approx(1.0)


def test_a_job_that_hardly_ever_gets_through_has_no_share() -> None:
    assert useful_share(replace(HOURLY, interruptions_per_hour=5.0, interval_hours=200.0)) == 0.0


def test_waiting_for_capacity_is_not_billed() -> None:
    """Of 1/λ + R = 11.75 hours a life, the 1.5 that are waited for machines cost nothing."""
    assert billed_share(HOURLY) == pytest.approx(1 - 1.5 / 11.75)
    assert billed_share(replace(HOURLY, recovery_hours=0.0)) == 1.0


def test_a_segment_is_kept_once_its_write_has_ended() -> None:
    """λτ exp(-λW) / [(1 + λR)(exp(λτ) - 1)] with λ 0.1, τ 1, W 0.5, R 1.75; what is billed does not depend on W."""
    beside = replace(HOURLY, stall_hours=0.0, loss_extra_hours=0.5)
    assert useful_share(beside) == pytest.approx(0.1 * math.exp(-0.05) / (1.175 * math.expm1(0.1)))
    assert billed_share(beside) == billed_share(HOURLY)


def test_a_write_that_hardly_ever_ends_leaves_no_share_and_no_finish() -> None:
    stuck = replace(HOURLY, stall_hours=0.0, loss_extra_hours=1e5)
    assert useful_share(stuck) == 0.0
    assert on_time_probability(stuck, 1000, 1e6) == 0.0


def test_a_certain_speed_without_interruptions_is_a_certain_finish() -> None:
    sure = GangRunRisk(100.0, 0.0, 1e-12, 1.5, 0.25, 1.0, 0.0, 0.0, True)
    assert hours_with_probability(sure, 1000, 0.95) == pytest.approx(10, rel=1e-4)
    assert on_time_probability(sure, 1000, 10.01) == pytest.approx(1.0)
    assert on_time_probability(sure, 1000, 9.99) == pytest.approx(0.0)


def test_an_uncertain_speed_alone_is_a_normal_quantile() -> None:
    unsure = GangRunRisk(100.0, 0.1, 1e-12, 1.5, 0.25, 1.0, 0.0, 0.0, True)
    assert hours_with_probability(unsure, 1000, 0.95) == pytest.approx(10 * (1 + 0.1 * 1.6449), rel=1e-3)
    assert on_time_steps_per_hour(unsure, 1000, 0.95) == pytest.approx(100 / 1.16449, rel=1e-3)


def test_one_even_chance_never_promises_more_than_is_expected() -> None:
    assert on_time_steps_per_hour(HOURLY, 50, 0.5) <= expected_steps_per_hour(HOURLY)


def test_a_long_job_comes_close_to_its_expectation() -> None:
    """The count of interruptions averages out; what is left is the error of the speed."""
    steady = replace(HOURLY, relative_error=0.0)
    shares = [on_time_steps_per_hour(steady, steps, 0.95) for steps in (1e2, 1e3, 1e4, 1e6)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(expected_steps_per_hour(steady), rel=0.02)


def test_without_checkpoint_a_long_job_suffers_most() -> None:
    """The whole job is one segment: doubling it more than doubles its time."""
    alone = replace(HOURLY, resumes=False, stall_hours=0.0)
    times = [steps / expected_steps_per_hour(replace(alone, interval_hours=steps / 100)) for steps in (500, 1000, 2000)]
    assert times[1] > 2.2 * times[0]
    assert times[2] > 2.2 * times[1]


def test_normal_probabilities_keep_their_digits_in_both_tails() -> None:
    x = np.concatenate([np.linspace(-38, 38, 4001), [-1e300, 1e300, -np.inf, np.inf, 0.0]])
    assert ndtr(x) == pytest.approx(special.ndtr(x), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("product", [*np.geomspace(1e-6, 40, 60)])
def test_the_interval_is_of_lambert_w(product: float) -> None:
    exact = 1 + float(special.lambertw(-math.exp(-1 - product)).real)
    assert _above_branch(product) == pytest.approx(exact, rel=3e-9)


@pytest.mark.parametrize("product", [1e-8, 1e-3, 0.1, 1.0, 30.0, 700.0])
def test_it_solves_its_equation(product: float) -> None:
    x = _above_branch(product)
    assert 0 < x < 1
    assert (1 - x) * math.exp(x) == pytest.approx(math.exp(-product), rel=1e-12, abs=1e-15)


def test_weights_are_negative_binomial() -> None:
    risk = GangRunRisk(100.0, 0.1, 0.3, 0.2, 0.1, 0.5, 0.02, 0.01, resumes=True)
    found = _finish_time(risk, 2000.0)
    load = math.log1p(math.expm1(0.3 * 0.52) * math.exp(0.3 * 0.01))
    segments, n = 20 / 0.5, np.arange(found.weights.size)
    logs = special.gammaln(n + segments) - special.gammaln(n + 1) - special.gammaln(segments)
    logs += -segments * load + n * math.log(-math.expm1(-load))
    assert found.weights == pytest.approx(np.exp(logs), rel=1e-11)
    assert found.weights.sum() == pytest.approx(1, rel=1e-9)


def daly(rate: float, stall: float) -> float:
    """Daly's higher-order optimum, for stalls below twice the mean time between interruptions."""
    ratio = stall * rate / 2
    return math.sqrt(2 * stall / rate) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.27, 1.0])
@pytest.mark.parametrize("stall", [0.005, 0.05, 0.3])
def test_the_best_interval_is_the_one_that_brute_force_finds(rate: float, stall: float) -> None:
    intervals = np.geomspace(1 / 60, 400, 40_001)
    shares = intervals / np.expm1(rate * (intervals + stall))  # what does not depend on the interval is left out
    found = float(intervals[int(np.argmax(shares))])
    assert best_interval_hours(rate, stall, 0.0) == pytest.approx(max(found, 1 / 60), rel=1e-3)


@pytest.mark.parametrize(("rate", "stall"), [(1e-4, 0.01), (1e-3, 0.01), (1e-3, 0.001)])
def test_rare_interruptions_give_youngs_interval(rate: float, stall: float) -> None:
    assert best_interval_hours(rate, stall, 0.0) == pytest.approx(math.sqrt(2 * stall / rate), rel=0.005)


@pytest.mark.parametrize(("rate", "stall"), [(1e-3, 0.05), (0.02, 0.05), (0.27, 0.1), (1.0, 0.1)])
def test_dalys_form_is_close(rate: float, stall: float) -> None:
    assert best_interval_hours(rate, stall, 0.0) == pytest.approx(daly(rate, stall), rel=0.005)
