"""Compare simple forecasts of spot prices with "the price stays", out of sample, and say what they would save.

    python -m tests.bench.price_forecast [--history FOLDER [--instance-type NAME ...]]

Prices are the recorded ones of nine pools (V100, AWS, 2023), or those that ``stepfare prices refresh`` keeps in FOLDER.
A forecast made at the start of an hour knows the prices up to that moment. Its parameters come from the first half of
the prices, or are fitted anew each day on the hours before; the second half judges. A gate gives each pool the forecast
that did best in the second quarter, fitted on the first, or persistence where none beat it.

Money: a job of 6 hours may start in any of the next 18 hours. It starts where its forecast is cheapest, the earliest of
equals; against starting now, and against the cheapest start in hindsight. Intervals (90 %) draw pools and blocks of two
days with replacement, both at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from pricing.places import Market
from router.config.trace_files import read_traces
from router.prices.history import Selection, read_series
from router.spot.simulator.traces import Floats, Ints, Series
from tests.bench.cells import PROBED
from tests.bench.forecast_rules import AHEAD, DAY, FORECASTS, PERSISTENCE, Forecast, HourlyPrices

HOUR_S: Final = 3600
PROBED_FROM: Final = datetime(2023, 2, 15, 22, 8, 16, tzinfo=UTC)
JOB_H: Final = 6
LATEST_START: Final = 18
BLOCK_H: Final = 2 * DAY
SHORTEST: Final = 8 * DAY  # two days a quarter
DRAWS: Final = 2000
HINDSIGHT: Final = "perfect foresight"
BY_ERROR: Final = "gate by error"
BY_COST: Final = "gate by cost"


@dataclass(frozen=True, eq=False, slots=True)
class ForecastScore:
    """Errors and costs of one forecast by [pool, origin].

    ``error`` is the mean absolute error over the hours ahead as a share of the price; ``start`` the hour that the job
    is started in, counted from the origin; ``usd`` what it then costs.
    """

    error: Floats
    start: Ints
    usd: Floats


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with its 90 % interval; NaN where there is nothing to divide by."""

    value: float
    low: float
    high: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare forecasts of spot prices with the price of now.")
    parser.add_argument("--history", type=Path, help="folder of a price history; default: the recorded V100 prices")
    parser.add_argument("--instance-type", action="append", default=[], help="only this type of the history")
    options = parser.parse_args()
    if options.history is None and not PROBED.is_dir():
        print("PRICE FORECAST: skipped, the shared data are not here; give --history FOLDER")
        return
    try:
        prices = recorded_prices() if options.history is None else kept_prices(options.history, options.instance_type)
        for line in report(prices):
            print(line, flush=True)
    except ValueError as error:
        parser.error(str(error))


def recorded_prices() -> HourlyPrices:
    """Return the recorded V100 prices by the hour."""
    return hourly_prices(read_traces(PROBED), PROBED_FROM)


def hourly_prices(series: Series, first: datetime) -> HourlyPrices:
    """Return the price at the start of each whole hour of the traces, and its mean over the hour."""
    hours = series.ticks * series.tick_s // HOUR_S
    edges = np.arange(hours + 1) * HOUR_S / series.tick_s
    usd = series.spot_usd()
    total = np.concatenate([np.zeros((len(usd), 1)), np.cumsum(usd, axis=1)], axis=1)
    at_edges = np.stack([np.interp(edges, np.arange(series.ticks + 1), row) for row in total])
    paid = np.diff(at_edges, axis=1) * series.tick_s / HOUR_S
    return HourlyPrices(tuple(z.zone for z in series.zones), first, usd[:, edges[:-1].astype(int)], paid)


def kept_prices(folder: Path, instance_types: Sequence[str]) -> HourlyPrices:
    """Return the spot prices of a kept history by the hour; a price holds until the next one.

    Pools without a price in the first day of the history are left out. Raise ValueError where none is left.
    """
    frame = read_series(folder, Selection(instance_types=tuple(instance_types), markets=(Market.SPOT,)))
    frame = frame[frame["usd_nanos_per_hour"].notna()]
    if frame.empty:
        raise ValueError(f"{folder}: no spot prices; run `stepfare prices refresh`, or name another instance type")
    first, last = frame["at"].min().to_pydatetime(), frame["at"].max().to_pydatetime()
    first = (first + timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
    edges = np.arange((last - first) // timedelta(hours=1) + 1) * float(HOUR_S)
    names, seen, paid = [], [], []
    for (cloud, region, zone, machine, _), rows in frame.groupby(
        ["cloud", "region", "zone", "instance_type", "source"], dropna=False
    ):
        at = (rows["at"] - first).dt.total_seconds().to_numpy(dtype=float)
        usd = rows["usd_nanos_per_hour"].to_numpy(dtype=float) / 1e9
        if at[0] <= 0 and len(edges) > 1:
            names.append(f"{cloud}/{zone if isinstance(zone, str) else region}/{machine}")
            seen.append(usd[np.searchsorted(at, edges[:-1], side="right") - 1])
            paid.append(_mean_by_hour(at, usd, edges))
    if not names:
        raise ValueError(f"{folder}: no pool has prices over more than a day; refresh prices for longer")
    return HourlyPrices(tuple(names), first, np.stack(seen), np.stack(paid))


def _mean_by_hour(at: Floats, usd: Floats, edges: Floats) -> Floats:
    """Return the mean price of each hour, of prices that hold from ``at`` (seconds) to the next."""
    ends = np.append(at, max(edges[-1], at[-1]) + 1)
    total = np.concatenate([[0.0], np.cumsum(usd * np.diff(ends))])
    mean: Floats = np.diff(np.interp(edges, ends, total)) / HOUR_S
    return mean


def report(prices: HourlyPrices) -> Iterator[str]:
    """Yield the lines of the report; raise ValueError for less than eight days of prices."""
    if prices.hours < SHORTEST:
        raise ValueError(f"{prices.hours} hours of prices are too few to judge; give at least {SHORTEST}")
    yield f"PRICE FORECAST ({len(prices.pools)} pools, {prices.hours} hours from {prices.first:%Y-%m-%d %H:%M} UTC)"
    for title, refit in (("parameters from the first half", prices.hours), ("parameters fitted anew each day", DAY)):
        gates = choose_gates(prices, refit)
        scores = judge(prices, gates, refit)
        yield f"\n{title}; {judged_origins(prices).size} hours of the second half, each an origin"
        yield f"  {'':24}{'error':>8} {'ratio to persistence':>24} {'cost saved, %':>24} {'waits, h':>9}"
        for name, one in scores.items():
            yield f"  {name:24}{_row(one, scores[PERSISTENCE])}"
        yield f"\n  {'pool':24}{'error':>8} {'gate by error':>20}{'ratio':>7}{'saved, %':>10}{'foresight, %':>14}"
        for number, pool in enumerate(prices.pools):
            yield f"  {pool:24}{_pool_row(scores, gates[BY_ERROR][number], number)}"
        yield f"\n  {'cheapest of all pools':24}{'cost saved, %':>33}"
        for name, saved in cheapest_savings(prices, gates, refit).items():
            yield f"  {name:24}{_percent(saved):>33}"


def choose_gates(prices: HourlyPrices, refit: int) -> Mapping[str, tuple[str, ...]]:
    """Return by gate the forecast of each pool that did best in the second quarter, by its error or by its cost."""
    first_half = prices.before(prices.hours // 2)
    origins = np.arange(prices.hours // 4, first_half.hours - AHEAD)
    trial = {name: score(first_half, forecast, origins, refit) for name, forecast in FORECASTS.items()}
    return {
        BY_ERROR: choose_by({name: one.error.mean(axis=1) for name, one in trial.items()}),
        BY_COST: choose_by({name: one.usd.mean(axis=1) for name, one in trial.items()}),
    }


def judge(prices: HourlyPrices, gates: Mapping[str, tuple[str, ...]], refit: int) -> Mapping[str, ForecastScore]:
    """Return the scores of all forecasts, gates and hindsight on the second half."""
    origins = judged_origins(prices)
    scores = {name: score(prices, forecast, origins, refit) for name, forecast in FORECASTS.items()}
    mixed = {gate: _mixed(scores, chosen) for gate, chosen in gates.items()}
    return {**scores, **mixed, HINDSIGHT: _hindsight(prices, origins)}


def judged_origins(prices: HourlyPrices) -> Ints:
    """Return the hours of the second half that have a whole day of prices after them."""
    return np.arange(prices.hours // 2, prices.hours - AHEAD)


def choose_by(losses: Mapping[str, Floats]) -> tuple[str, ...]:
    """Return for each pool the forecast of the least loss, or persistence where none is below its loss."""
    names = (PERSISTENCE, *(name for name in losses if name != PERSISTENCE))
    table = np.round(np.stack([losses[name] for name in names]), 12)
    return tuple(names[number] for number in table.argmin(axis=0))


def score(prices: HourlyPrices, forecast: Forecast, origins: Ints, refit: int) -> ForecastScore:
    """Return the errors of a forecast at these hours, and the cost of the job that starts by it."""
    ahead = forecast_at(prices, forecast, origins, refit)
    real = prices.seen[:, origins[:, None] + np.arange(1, AHEAD + 1)]
    now = prices.seen[:, origins]
    start = cheapest_start(np.concatenate([now[:, :, None], ahead], axis=2))
    return ForecastScore(np.abs(ahead / real - 1).mean(axis=2), start, _run_usd(prices, origins, start))


def forecast_at(prices: HourlyPrices, forecast: Forecast, origins: Ints, refit: int) -> Floats:
    """Return forecasts by [pool, origin, hour ahead - 1]; every ``refit`` origins, the hours so far are fitted anew."""
    parts = np.array_split(origins, np.arange(refit, origins.size, refit))
    return np.concatenate([forecast(prices, int(part[0]), part) for part in parts], axis=1)


def cheapest_start(usd: Floats) -> Ints:
    """Return the first start of the least cost, of prices [..., hour from now]; equal to 12 digits is equal."""
    total = np.stack([usd[..., s : s + JOB_H].sum(axis=-1) for s in range(LATEST_START + 1)], axis=-1)
    first: Ints = np.round(total / total[..., :1], 12).argmin(axis=-1)
    return first


def _run_usd(prices: HourlyPrices, origins: Ints, start: Ints) -> Floats:
    """Return what the job costs that starts so many hours after each origin."""
    hours = (origins[None, :] + start)[:, :, None] + np.arange(JOB_H)
    usd: Floats = np.take_along_axis(prices.paid[:, None, :], hours, axis=2).sum(axis=2)
    return usd


def _hindsight(prices: HourlyPrices, origins: Ints) -> ForecastScore:
    start = cheapest_start(prices.paid[:, origins[:, None] + np.arange(AHEAD)])
    return ForecastScore(np.zeros(start.shape), start, _run_usd(prices, origins, start))


def _mixed(scores: Mapping[str, ForecastScore], chosen: Sequence[str]) -> ForecastScore:
    """Return the scores of the forecast that was chosen for each pool."""
    rows = [(scores[name], number) for number, name in enumerate(chosen)]
    return ForecastScore(
        np.stack([one.error[number] for one, number in rows]),
        np.stack([one.start[number] for one, number in rows]),
        np.stack([one.usd[number] for one, number in rows]),
    )


def cheapest_savings(prices: HourlyPrices, gates: Mapping[str, tuple[str, ...]], refit: int) -> Mapping[str, Ratio]:
    """Return the share of cost saved where the job may choose its pool too, against the cheapest pool now."""
    origins = judged_origins(prices)
    ahead = {name: forecast_at(prices, forecast, origins, refit) for name, forecast in FORECASTS.items()}
    for gate, chosen in gates.items():
        ahead[gate] = np.stack([ahead[name][number] for number, name in enumerate(chosen)])
    now = prices.seen[:, origins, None]
    views = {name: np.concatenate([now, one], axis=2) for name, one in ahead.items()}
    views[HINDSIGHT] = prices.paid[:, origins[:, None] + np.arange(AHEAD)]
    usd = {}
    for name, view in views.items():
        start = cheapest_start(view)
        expected = np.take_along_axis(view, start[:, :, None] + np.arange(JOB_H), axis=2).sum(axis=2)
        pool = np.round(expected, 12).argmin(axis=0)
        usd[name] = _run_usd(prices, origins, start)[pool, np.arange(origins.size)][None, :]
    base = usd[PERSISTENCE]
    return {name: ratio_of(1 - one / base, np.ones(base.shape)) for name, one in usd.items()}


def ratio_of(over: Floats, under: Floats, draws: int = DRAWS) -> Ratio:
    """Return the ratio of the sums of two tables [pool, origin].

    Its interval draws pools and blocks of two days with replacement, each on its own.
    """
    blocks = np.arange(over.shape[1]) // BLOCK_H
    above, below = (np.stack([np.bincount(blocks, row) for row in table]) for table in (over, under))
    rng = np.random.default_rng(0)
    pools, times = (rng.multinomial(size, np.full(size, 1 / size), size=draws).astype(float) for size in above.shape)
    top, bottom = (np.einsum("dp,pb,db->d", pools, table, times) for table in (above, below))
    drawn = top[bottom > 0] / bottom[bottom > 0]
    if not drawn.size:
        return Ratio(float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(drawn, [0.05, 0.95])
    return Ratio(float(over.sum() / under.sum()), float(low), float(high))


def error_ratio(one: ForecastScore, persistence: ForecastScore) -> Ratio:
    """Return the forecast's error over that of persistence."""
    return ratio_of(one.error, persistence.error)


def saving(one: ForecastScore, persistence: ForecastScore) -> Ratio:
    """Return the mean share of the job's cost that the forecast's start saves against starting now."""
    return ratio_of(1 - one.usd / persistence.usd, np.ones(one.usd.shape))


def _row(one: ForecastScore, persistence: ForecastScore) -> str:
    ratio = error_ratio(one, persistence)
    said = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{one.error.mean():8.3%} {said:>24} {_percent(saving(one, persistence)):>24} {one.start.mean():9.1f}"


def _percent(share: Ratio) -> str:
    value, low, high = (round(100 * number, 3) + 0.0 for number in (share.value, share.low, share.high))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _pool_row(scores: Mapping[str, ForecastScore], chosen: str, pool: int) -> str:
    still, gate, best = scores[PERSISTENCE], scores[chosen], scores[HINDSIGHT]
    error = still.error[pool].mean()
    ratio = f"{gate.error[pool].mean() / error:7.3f}" if error else f"{'-':>7}"
    saved, foresight = (100 * (1 - one.usd[pool] / still.usd[pool]).mean() for one in (gate, best))
    return f"{error:8.3%} {chosen:>20}{ratio}{saved:10.3f}{foresight:14.3f}"


if __name__ == "__main__":
    main()
