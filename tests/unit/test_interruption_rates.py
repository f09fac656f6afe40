"""Rates from counts: the gamma posterior and its interval, evidence of each kind, on-demand failures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from pricing.book_file import embedded_book
from pricing.interruption_rates import (
    POOL_SHAPE,
    PriorShape,
    gamma_probability,
    gamma_quantile,
    posterior_rate,
    prior_interval,
)
from pricing.observed_risk import Exposure
from pricing.places import Market
from pricing.risk import RiskTable, band_interval, band_rate
from tests.support.books import MACHINE, PRIORS, spot

PRIOR = PriorShape(0.84, 0.27)


@pytest.mark.parametrize("shape", [0.02, 0.5, 0.84, 1.0, 7.3, 200.84])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_quantiles_are_those_of_a_library_that_is_not_loaded_for_them(shape: float, probability: float) -> None:
    exact = float(special.gammaincinv(shape, probability))
    assert gamma_quantile(shape, probability) == pytest.approx(exact, rel=1e-9, abs=1e-30)
    assert gamma_probability(shape, 1.3 * shape) == pytest.approx(
        float(special.gammainc(shape, 1.3 * shape)), rel=1e-12
    )


def test_the_posterior_is_a_gamma_distribution() -> None:
    found = posterior_rate(Exposure(100.0, 12), PRIOR)
    gamma = stats.gamma(12.84, scale=1 / (100 + 0.84 / 0.27))
    assert found.per_hour == pytest.approx(gamma.mean())
    assert (found.low, found.high) == pytest.approx(tuple(gamma.ppf([0.1, 0.9])))


def test_intervals_hold_four_times_in_five() -> None:
    """Pools drawn from the prior, watched for 20 hours each."""
    rng = np.random.default_rng(1)
    rates = rng.gamma(PRIOR.shape, PRIOR.mean / PRIOR.shape, 4000)
    found = [posterior_rate(Exposure(20.0, int(n)), PRIOR) for n in rng.poisson(rates * 20.0)]
    held = [f.low <= rate <= f.high for f, rate in zip(found, rates, strict=True) if f.low is not None and f.high]
    assert np.mean(held) == pytest.approx(0.8, abs=0.02)


def test_more_hours_narrow_the_interval() -> None:
    widths = []
    for hours in (0.0, 10.0, 100.0, 1000.0):
        found = posterior_rate(Exposure(hours, round(hours * 0.27)), PRIOR)
        assert found.low is not None
        assert found.high is not None
        widths.append(found.high / found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.2


def test_a_prior_of_zero_has_no_interval_and_no_posterior() -> None:
    assert prior_interval(0.0).low is None
    with pytest.raises(ValueError, match="above 0"):
        posterior_rate(Exposure(10.0, 1), PriorShape(POOL_SHAPE, 0.0))


def test_each_kind_of_evidence_has_its_interval() -> None:
    table = RiskTable(PRIORS)
    stated = table.gang(spot("30", interruptions_per_hour=0.02), MACHINE, 1)
    prior = table.gang(spot("30"), MACHINE, 1)
    assert (stated.low_per_hour, stated.high_per_hour) == (None, None)
    assert prior.low_per_hour is not None
    assert prior.high_per_hour is not None
    assert 10 < prior.high_per_hour / prior.low_per_hour < 100
    assert band_interval("5-10%").low == band_rate("<5%")
    assert band_interval(">20%").high is None


def test_a_large_gang_on_demand_expects_failures_within_a_week() -> None:
    """512 accelerators for 168 hours: 2.9, between 1.7 and 5.7, as published counts of failures have it."""
    book, found = embedded_book(), 0
    for offer in book.offers:
        machine = book.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        if offer.market is Market.ON_DEMAND and machine.accelerator == "H100" and machine.accelerator_count == 8:
            risk = book.risk.gang(offer, machine, 64)
            assert risk.interruptions_per_hour * 168 == pytest.approx(2.87, abs=0.01)
            assert risk.low_per_hour is not None
            assert risk.high_per_hour is not None
            assert risk.low_per_hour * 168 == pytest.approx(1.72, abs=0.01)
            assert risk.high_per_hour * 168 == pytest.approx(5.73, abs=0.01)
            found += 1
    assert found
