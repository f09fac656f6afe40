"""The special functions behind goodput, against a library that is not loaded for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gammaln, lambertw

from router.jobs import goodput
from router.jobs.goodput import GangRunRisk, ndtr


def test_normal_probabilities_keep_their_digits_in_both_tails() -> None:
    import scipy.special

    x = np.concatenate([np.linspace(-38, 38, 4001), [-1e300, 1e300, -np.inf, np.inf, 0.0]])
    assert ndtr(x) == pytest.approx(scipy.special.ndtr(x), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("product", [*np.geomspace(1e-6, 40, 60)])
def test_the_interval_is_of_lambert_w(product: float) -> None:
    exact = 1 + float(lambertw(-math.exp(-1 - product)).real)
    assert goodput._above_branch(product) == pytest.approx(exact, rel=3e-9)


@pytest.mark.parametrize("product", [1e-8, 1e-3, 0.1, 1.0, 30.0, 700.0])
def test_it_solves_its_equation(product: float) -> None:
    x = goodput._above_branch(product)
    assert 0 < x < 1
    assert (1 - x) * math.exp(x) == pytest.approx(math.exp(-product), rel=1e-12, abs=1e-15)


def test_weights_are_negative_binomial() -> None:
    risk = GangRunRisk(100.0, 0.1, 0.3, 0.2, 0.1, 0.5, 0.02, 0.01, resumes=True)
    found = goodput._finish_time(risk, 2000.0)
    load = math.log1p(math.expm1(0.3 * 0.52) * math.exp(0.3 * 0.01))
    segments, n = 20 / 0.5, np.arange(found.weights.size)
    logs = gammaln(n + segments) - gammaln(n + 1) - gammaln(segments)
    logs += -segments * load + n * math.log(-math.expm1(-load))
    assert found.weights == pytest.approx(np.exp(logs), rel=1e-11)
    assert found.weights.sum() == pytest.approx(1, rel=1e-9)
