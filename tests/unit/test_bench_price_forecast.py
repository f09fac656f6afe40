"""The study of price forecasts, on made-up prices whose answer is known, and its reading of prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from router.prices import history
from router.spot.simulator.traces import Floats, Series, ZoneSeries
from tests.bench import price_forecast as study
from tests.bench.cells import PROBED
from tests.bench.forecast_rules import AHEAD, DAY, FORECASTS, PERSISTENCE, HourlyPrices
from tests.support.price_points import START, a_point

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


def week() -> HourlyPrices:
    """Return prices with a level of each day of the week."""
    levels = 0.2 * np.random.default_rng(2).random((POOLS, 7))
    return prices_of(levels[:, HOURS // DAY % 7] + noise(3, 0.001))


def reverting() -> HourlyPrices:
    """Return prices that lose a tenth of their distance to the mean each hour."""
    log, steps = np.zeros((POOLS, HOURS.size)), noise(4)
    for hour in HOURS[1:]:
        log[:, hour] = 0.9 * log[:, hour - 1] + steps[:, hour]
    return prices_of(log)


def smoothed() -> HourlyPrices:
    """Return prices that follow a random walk three days behind."""
    kernel = np.full(3 * DAY, 1 / (3 * DAY))
    walk = np.cumsum(noise(5), axis=1)
    return prices_of(np.stack([np.convolve(row, kernel)[: HOURS.size] for row in walk]))


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


@pytest.mark.parametrize(
    ("name", "prices"),
    [("day of week", week()), ("mean reversion", reverting()), ("trend", smoothed()), ("common trend", smoothed())],
)
def test_each_rule_wins_where_prices_follow_it(name: str, prices: HourlyPrices) -> None:
    origins = study.judged_origins(prices)
    found, still = (study.score(prices, FORECASTS[one], origins, DAY) for one in (name, PERSISTENCE))
    assert study.error_ratio(found, still).high < 1
    assert study.saving(found, still).low > 0


@pytest.mark.parametrize("refit", REFITS)
@pytest.mark.parametrize("name", FORECASTS)
def test_no_forecast_reads_a_price_after_its_hour(name: str, refit: int) -> None:
    prices = random_walk()
    origin = HOURS.size // 2 + 2 * DAY  # the last fit is at this hour
    other = prices_of(np.where(origin < HOURS, noise(6, 1.0), np.log(prices.seen)))
    origins = np.arange(HOURS.size // 2, origin + 1)
    one, two = (study.forecast_at(p, FORECASTS[name], origins, refit) for p in (prices, other))
    np.testing.assert_array_equal(one, two)


def test_gates_know_the_first_half_alone() -> None:
    prices, half = wave(), HOURS.size // 2
    other = prices_of(np.where(half <= HOURS, noise(7, 1.0), np.log(prices.seen)))
    assert study.choose_gates(other, DAY) == study.choose_gates(prices, DAY)


def test_a_gate_keeps_persistence_where_none_is_better() -> None:
    losses = {"other": np.array([1.0, 2.0, 1.0 + 1e-15]), PERSISTENCE: np.array([2.0, 1.0, 1.0])}
    assert study.choose_by(losses) == ("other", PERSISTENCE, PERSISTENCE)


def test_a_job_starts_at_the_first_of_the_cheapest_hours() -> None:
    usd = np.ones(AHEAD + 1)
    assert study.cheapest_start(usd) == 0
    usd[[8, 20]] = 0.5
    assert study.cheapest_start(usd) == 8 - study.JOB_H + 1
    usd[24] = 0.0  # beyond the last start
    assert study.cheapest_start(usd) == 8 - study.JOB_H + 1


def test_a_ratio_has_its_interval_over_pools_and_blocks() -> None:
    ones = np.ones((2, 4 * study.BLOCK_H))
    assert study.ratio_of(3 * ones, 2 * ones) == study.Ratio(1.5, 1.5, 1.5)
    by_pool = study.ratio_of(ones * [[0.0], [2.0]], ones)
    assert (by_pool.value, by_pool.low, by_pool.high) == (1.0, 0.0, 2.0)
    assert np.isnan(study.ratio_of(ones, 0 * ones).value)


def test_prices_of_an_hour_are_the_one_at_its_start_and_the_mean_over_it() -> None:
    usd = np.array([1.0, 1.0, 4.0, 2.0, 2.0, 2.0, 9.0])  # ticks of 24 minutes: 2 1/2 an hour, the last is no whole hour
    series = Series(1440, (ZoneSeries("z", "r", np.ones(7, np.int64), usd, 10.0),))
    prices = study.hourly_prices(series, FIRST)
    assert prices.seen.tolist() == [[1.0, 4.0]]
    assert prices.paid[0] == pytest.approx([(1 + 1 + 2) / 2.5, (2 + 2 + 2) / 2.5])


def test_prices_of_a_kept_history_hold_until_the_next(tmp_path: Path) -> None:
    at = [(0.0, "2"), (25.5, "4"), (27.0, "6")]
    history.append(tmp_path, [a_point(hour, usd) for hour, usd in at])
    history.append(tmp_path, [a_point(30, "1", zone="new")])  # not there in the first day
    prices = study.kept_prices(tmp_path, [])
    assert (len(prices.pools), prices.first) == (1, START + timedelta(days=1))
    assert prices.seen[0].tolist() == [2, 2, 4, 6, 6, 6]
    assert prices.paid[0].tolist() == [2, 3, 4, 6, 6, 6]
    with pytest.raises(ValueError, match="no spot prices"):
        study.kept_prices(tmp_path, ["another"])


@pytest.mark.skipif(not PROBED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize("refit", REFITS)
def test_no_forecast_saves_on_recorded_prices(refit: int) -> None:
    """Keep the decision of docs/design/placement-program.md true of what is compared."""
    prices = study.recorded_prices()
    scores = study.judge(prices, study.choose_gates(prices, refit), refit)
    saved = {name: study.saving(one, scores[PERSISTENCE]) for name, one in scores.items()}
    assert 0 < saved.pop(study.HINDSIGHT).value < 0.005
    assert all(one.low <= 0 for one in saved.values())


def test_without_data_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(study, "PROBED", Path("nowhere"))
    monkeypatch.setattr("sys.argv", ["price_forecast"])
    study.main()
    assert "skipped" in capsys.readouterr().out


def test_the_report_names_every_forecast_and_wants_eight_days() -> None:
    lines = list(study.report(wave()))
    for name in (*FORECASTS, study.BY_ERROR, study.BY_COST, study.HINDSIGHT, "pool 5"):
        assert sum(line.strip().startswith(name) for line in lines) >= 2, name
    with pytest.raises(ValueError, match="too few"):
        next(study.report(wave().before(8 * DAY - 1)))
