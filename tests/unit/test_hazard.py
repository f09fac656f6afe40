"""The hazard of interruptions: survival, quantiles, posteriors, mixtures, each against a value found another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pricing.hazard import AGE_SCALE_HOURS, LEVELS, Hazard, HazardShape, deviation_of, mix, operational_time

PRIOR = Hazard.lognormal(HazardShape.FALLING, 0.5, 0.9)


def one_level(level: float, shape: HazardShape = HazardShape.FALLING) -> Hazard:
    return Hazard(shape, (level,), (1.0,))


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("hazard", [PRIOR, Hazard.lognormal(HazardShape.CONSTANT, 0.006, 1.2)])
def test_a_level_that_counts_as_known_is_the_quantile(hazard: Hazard, probability: float) -> None:
    known = hazard.at_quantile(probability)
    assert (known.shape, known.levels) == (hazard.shape, hazard.levels)
    assert sum(known.weights) == pytest.approx(1.0)
    assert known.mean == pytest.approx(max(hazard.quantile(probability), LEVELS[0]))
    assert sum(weight > 0 for weight in known.weights) <= 2


def test_a_rate_that_is_stated_is_known_already() -> None:
    assert Hazard.known(0.2).at_quantile(0.1) == Hazard.known(0.2)


@pytest.mark.parametrize(("hours", "age"), [(0.0, 0.0), (2.0, 0.0), (8.0, 3.0)])
def test_operational_time_is_the_integral_of_the_falling_rate(hours: float, age: float) -> None:
    ages = np.linspace(age, age + hours, 20_001)
    integral = float(np.trapezoid(1 / (AGE_SCALE_HOURS + ages), ages))
    assert operational_time(HazardShape.FALLING, hours, age) == pytest.approx(integral, abs=1e-6)
    assert operational_time(HazardShape.CONSTANT, hours, age) == hours


def test_operational_times_of_two_parts_of_a_life_add_up() -> None:
    parts = operational_time(HazardShape.FALLING, 2.0) + operational_time(HazardShape.FALLING, 5.0, 2.0)
    assert operational_time(HazardShape.FALLING, 7.0) == pytest.approx(parts)


def test_survival_is_the_power_law_of_the_age() -> None:
    c = AGE_SCALE_HOURS
    assert one_level(1.7).survival(5.0, 2.0) == pytest.approx(((c + 2) / (c + 7)) ** 1.7)
    assert one_level(0.3, HazardShape.CONSTANT).survival(5.0, 2.0) == pytest.approx(math.exp(-1.5))


def test_survival_of_an_uncertain_level_is_the_share_of_drawn_machines_that_live() -> None:
    rng = np.random.default_rng(7)
    levels = rng.choice(PRIOR.levels, 200_000, p=PRIOR.weights)
    lives = AGE_SCALE_HOURS * np.expm1(rng.standard_exponential(levels.size) / levels)
    assert PRIOR.survival(6.0) == pytest.approx(float(np.mean(lives > 6.0)), abs=0.005)


def test_a_lognormal_has_its_median_and_its_interval() -> None:
    low, high = PRIOR.interval
    assert PRIOR.quantile(0.5) == pytest.approx(0.5, rel=0.01)
    assert deviation_of(low, high) == pytest.approx(0.9, rel=0.03)
    assert PRIOR.mean == pytest.approx(0.5 * math.exp(0.9**2 / 2), rel=0.02)
    assert sum(PRIOR.weights) == pytest.approx(1.0)


def test_quantiles_rise_with_the_probability() -> None:
    found = [PRIOR.quantile(p) for p in np.linspace(0.001, 0.999, 200).tolist()]
    assert found == sorted(found)
    assert found[0] < found[-1] / 50


@pytest.mark.parametrize(("interruptions", "exposure"), [(0.0, 0.3), (0.0, 6.0), (2.0, 1.5), (0.5, 4.0), (9.0, 11.0)])
def test_the_posterior_is_that_of_a_fine_integration(interruptions: float, exposure: float) -> None:
    logs = np.linspace(math.log(1e-4), math.log(100), 40_001)
    fine = -0.5 * ((logs - math.log(0.5)) / 0.9) ** 2 + interruptions * logs - np.exp(logs) * exposure
    weights = np.exp(fine - fine.max())
    mean = float((weights * np.exp(logs)).sum() / weights.sum())
    cumulated = np.cumsum(weights) / weights.sum()
    found = PRIOR.observed(interruptions, exposure)
    assert found.mean == pytest.approx(mean, rel=0.03)
    for probability in (0.1, 0.5, 0.9):
        exact = math.exp(float(logs[np.searchsorted(cumulated, probability)]))
        assert found.quantile(probability) == pytest.approx(exact, rel=0.12)


def test_evidence_in_two_parts_is_evidence_at_once() -> None:
    parts = PRIOR.observed(1.0, 2.0).observed(2.0, 0.5)
    assert parts.weights == pytest.approx(PRIOR.observed(3.0, 2.5).weights)


def test_evidence_that_contradicts_the_prior_beyond_all_measure_still_has_a_posterior() -> None:
    assert PRIOR.observed(0.0, 1e6).quantile(0.5) == pytest.approx(LEVELS[0], rel=0.3)
    assert PRIOR.observed(5000.0, 1.0).quantile(0.5) == pytest.approx(LEVELS[-1], rel=0.3)


@pytest.mark.parametrize("factor", [0.25, 0.9, 1.0, 1.3, 4.0])
def test_scaling_moves_median_and_mean_by_the_factor(factor: float) -> None:
    scaled = PRIOR.scaled(factor)
    assert scaled.quantile(0.5) == pytest.approx(PRIOR.quantile(0.5) * factor, rel=0.02)
    assert scaled.mean == pytest.approx(PRIOR.mean * factor, rel=0.06)
    assert scaled.levels == LEVELS
    assert sum(scaled.weights) == pytest.approx(1.0)


def test_scaling_keeps_what_would_leave_the_grid_at_its_edge() -> None:
    assert PRIOR.scaled(1e6).quantile(0.5) == pytest.approx(LEVELS[-1], rel=0.3)
    assert PRIOR.scaled(1e-6).quantile(0.5) == pytest.approx(LEVELS[0], rel=0.3)


def test_scaling_a_known_rate_is_exact() -> None:
    assert Hazard.known(0.02).scaled(3.0).levels == pytest.approx((0.06,))


def test_a_mixture_survives_as_its_parts_do() -> None:
    parts = [(0.3, PRIOR), (0.7, PRIOR.scaled(5.0))]
    whole = mix(parts)
    for age in (0.0, 4.0):
        assert whole.survival(8.0, 0.0) == pytest.approx(sum(share * part.survival(8.0) for share, part in parts))
        assert whole.survival(8.0, age) >= min(part.survival(8.0, age) for _, part in parts)
    assert whole.mean == pytest.approx(0.3 * parts[0][1].mean + 0.7 * parts[1][1].mean)


def test_the_rate_falls_with_age_and_is_the_slope_of_survival() -> None:
    ages = (0.0, 0.5, 2.0, 8.0, 24.0)
    rates = [PRIOR.rate_at(age) for age in ages]
    assert rates == sorted(rates, reverse=True)
    step = 1e-5
    for age, rate in zip(ages, rates, strict=True):
        slope = (math.log(PRIOR.survival(age)) - math.log(PRIOR.survival(age + step))) / step
        assert rate == pytest.approx(slope, rel=1e-3)


def test_a_constant_rate_of_unknown_level_seems_to_fall_since_calm_pools_survive() -> None:
    unknown = Hazard.lognormal(HazardShape.CONSTANT, 0.2, 1.0)
    assert unknown.rate_at(24.0) < 0.7 * unknown.rate_at(0.0)
    assert Hazard.known(0.2).rate_at(24.0) == Hazard.known(0.2).rate_at(0.0) == 0.2


def test_the_rate_over_the_first_hours_lies_between_that_of_their_begin_and_of_their_end() -> None:
    hazard = one_level(0.8)
    assert hazard.rate_at(8.0) < hazard.rate_over(8.0) < hazard.rate_at(0.0)
    assert hazard.rate_over(8.0) == pytest.approx(0.8 * math.log1p(8.0 / AGE_SCALE_HOURS) / 8.0)
    assert hazard.rate_over(8.0, level=1.6) == pytest.approx(2 * hazard.rate_over(8.0))
