"""The study of price forecasts, on made-up prices whose answer is known, and on recorded ones."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from router.spot.simulator.traces import Floats
from tests.bench import price_forecast as study
from tests.bench.cells import PROBED
from tests.bench.forecast_rules import DAY, FORECASTS, PERSISTENCE, HourlyPrices

FIRST = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday
REFITS = (10**6, DAY)
POOLS, DAYS = 6, 56
HOURS = np.arange(DAYS * DAY)


def prices_of(log: Floats) -> HourlyPrices:
    usd = np.exp(log)
    return HourlyPrices(tuple(f"pool {number}" for number in range(len(usd))), FIRST, usd, usd)


def noise(seed: int, size: float = 0.01) -> Floats:
    return size * np.random.default_rng(seed).standard_normal((POOLS, HOURS.size))


def wave() -> HourlyPrices:
    """Return prices that go up and down by a tenth each day, a pool at a time of its own."""
    return prices_of(0.1 * np.sin(2 * np.pi * (HOURS + 4 * np.arange(POOLS)[:, None]) / DAY))


def random_walk() -> HourlyPrices:
    return prices_of(np.cumsum(noise(1), axis=1))


@pytest.mark.parametrize("refit", REFITS)
def test_a_daily_wave_is_forecast_and_saves_what_hindsight_saves(refit: int) -> None:
    prices = wave()
    gates = study.choose_gates(prices, refit)
    scores = study.judge(prices, gates, refit)
    for name in ("hour of day", "last day again", study.BY_ERROR, study.BY_COST):
        assert study.error_ratio(scores[name], scores[PERSISTENCE]).value < 1e-9
        assert scores[name].start.tolist() == scores[study.HINDSIGHT].start.tolist()
        assert study.saving(scores[name], scores[PERSISTENCE]).low > 0.05
    assert PERSISTENCE not in gates[study.BY_ERROR]
    savings = study.cheapest_savings(prices, gates, refit)
    assert savings["hour of day"].value == pytest.approx(savings[study.HINDSIGHT].value)


@pytest.mark.parametrize("refit", REFITS)
def test_nothing_beats_persistence_on_a_random_walk(refit: int) -> None:
    prices = random_walk()
    scores = study.judge(prices, study.choose_gates(prices, refit), refit)
    for name in FORECASTS.keys() - {PERSISTENCE}:
        assert study.error_ratio(scores[name], scores[PERSISTENCE]).value > 1, name
        assert study.saving(scores[name], scores[PERSISTENCE]).low < 0, name
    assert study.saving(scores[study.HINDSIGHT], scores[PERSISTENCE]).low > 0


@pytest.mark.parametrize("refit", REFITS)
@pytest.mark.parametrize("name", FORECASTS)
def test_no_forecast_reads_a_price_after_its_hour(name: str, refit: int) -> None:
    prices = random_walk()
    origin = HOURS.size // 2 + 2 * DAY  # the last fit is at this hour
    other = prices_of(np.where(origin < HOURS, noise(6, 1.0), np.log(prices.seen)))
    origins = np.arange(HOURS.size // 2, origin + 1)
    one, two = (study.forecast_at(p, FORECASTS[name], origins, refit) for p in (prices, other))
    np.testing.assert_array_equal(one, two)


@pytest.mark.skipif(not PROBED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize("refit", REFITS)
def test_no_forecast_saves_on_recorded_prices(refit: int) -> None:
    """Keep the decision of docs/design/placement-program.md true of what is compared."""
    prices = study.recorded_prices()
    scores = study.judge(prices, study.choose_gates(prices, refit), refit)
    saved = {name: study.saving(one, scores[PERSISTENCE]) for name, one in scores.items()}
    assert 0 < saved.pop(study.HINDSIGHT).value < 0.005
    assert all(one.low <= 0 for one in saved.values())
