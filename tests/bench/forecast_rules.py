"""Forecast prices by the hour from their past by simple rules: the ones that tests/bench/price_forecast.py compares.

A forecast takes the prices, the hour before which its parameters are fitted, and the hours at whose start it is made.
It returns prices by [pool, origin, hours ahead - 1]. It reads no price after an origin, and fits none from the fitted
hour on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np

from router.spot.simulator.traces import Floats, Ints

DAY: Final = 24
AHEAD: Final = 24
WEEK: Final = 7 * DAY


@dataclass(frozen=True, eq=False, slots=True)
class HourlyPrices:
    """Prices in dollars an hour by [pool, hour]; hour 0 begins at ``first``.

    ``seen`` is the price at the start of the hour, ``paid`` the mean over it.
    """

    pools: tuple[str, ...]
    first: datetime
    seen: Floats
    paid: Floats

    @property
    def hours(self) -> int:
        """Return the number of hours."""
        return len(self.seen[0])

    def before(self, hour: int) -> HourlyPrices:
        """Return the prices of the hours before this one."""
        return replace(self, seen=self.seen[:, :hour], paid=self.paid[:, :hour])

    def weekday(self, hours: Ints) -> Ints:
        """Return the day of the week of each hour, 0 to 6, from Monday."""
        return (self.first.weekday() + (self.first.hour + hours) // DAY) % 7


Forecast = Callable[[HourlyPrices, int, Ints], Floats]


def stay(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the price of the origin for every hour ahead."""
    return np.repeat(prices.seen[:, origins, None], AHEAD, axis=2)


def repeat_last_day(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the price of the same hour a day before."""
    return prices.seen[:, _ahead(origins) - DAY]


def follow_hours(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the price of the origin, moved as prices usually move from its hour of the day to the other."""
    days = fitted // DAY
    by_day = np.log(prices.seen[:, : days * DAY]).reshape(len(prices.pools), days, DAY)
    usual = (by_day - by_day.mean(axis=2, keepdims=True)).mean(axis=1)
    return _moved(prices, origins, usual[:, _ahead(origins) % DAY] - usual[:, origins % DAY][:, :, None])


def follow_weekdays(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the price of the origin, moved by the usual difference between the two days of the week.

    A day of the week that the fit never saw counts as the mean of all.
    """
    log = np.log(prices.seen[:, :fitted])
    days = prices.weekday(np.arange(fitted))
    usual = np.zeros((len(prices.pools), 7))
    for day in np.unique(days):
        usual[:, day] = log[:, days == day].mean(axis=1) - log.mean(axis=1)
    there, here = prices.weekday(_ahead(origins)), prices.weekday(origins)
    return _moved(prices, origins, usual[:, there] - usual[:, here][:, :, None])


def revert(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the price of the origin, moved back toward the mean of the week before: an AR(1) of the log price."""
    log = np.log(prices.seen)
    hours = np.arange(DAY, fitted - 1)
    means = _trailing_mean(log, hours)
    off, next_off = log[:, hours] - means, log[:, hours + 1] - means
    phi = np.clip(_slope(off, next_off, axis=1), 0.0, 1.0)
    gap = _trailing_mean(log, origins) - log[:, origins]
    return _moved(prices, origins, (1 - phi[:, None, None] ** np.arange(1, AHEAD + 1)) * gap[:, :, None])


def continue_trend(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the price of the origin, moved by a share of the last day's change; the shares are fitted by pool."""
    return _with_trend(prices, fitted, origins, axis=1)


def continue_common_trend(prices: HourlyPrices, fitted: int, origins: Ints) -> Floats:
    """Return the same as :func:`continue_trend` with one share for all pools."""
    return _with_trend(prices, fitted, origins, axis=None)


def _with_trend(prices: HourlyPrices, fitted: int, origins: Ints, axis: int | None) -> Floats:
    log = np.log(prices.seen)
    last_day = log[:, origins] - log[:, origins - DAY]
    shares = np.empty((len(prices.pools), AHEAD))
    for ahead in range(1, AHEAD + 1):
        hours = np.arange(DAY, fitted - ahead)
        change, later = log[:, hours] - log[:, hours - DAY], log[:, hours + ahead] - log[:, hours]
        shares[:, ahead - 1] = _slope(change, later, axis)
    return _moved(prices, origins, shares[:, None, :] * last_day[:, :, None])


def _slope(x: Floats, y: Floats, axis: int | None) -> Floats:
    """Return the least-squares slope through the origin; 0 where x never moves."""
    under = np.asarray((x * x).sum(axis=axis))
    slope: Floats = np.asarray((x * y).sum(axis=axis)) / np.where(under > 0, under, 1.0)
    return slope


def _trailing_mean(values: Floats, hours: Ints) -> Floats:
    """Return the mean of the week up to each hour, itself included; of what there is where that is less."""
    total = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
    begins = np.maximum(hours + 1 - WEEK, 0)
    mean: Floats = (total[:, hours + 1] - total[:, begins]) / (hours + 1 - begins)
    return mean


def _ahead(origins: Ints) -> Ints:
    """Return by [origin, hours ahead - 1] the hours that are forecast."""
    return origins[:, None] + np.arange(1, AHEAD + 1)


def _moved(prices: HourlyPrices, origins: Ints, change: Floats) -> Floats:
    """Return the price of each origin, changed by these amounts of its logarithm."""
    moved: Floats = prices.seen[:, origins, None] * np.exp(change)
    return moved


PERSISTENCE: Final = "persistence"
FORECASTS: Final[Mapping[str, Forecast]] = {
    PERSISTENCE: stay,
    "hour of day": follow_hours,
    "day of week": follow_weekdays,
    "mean reversion": revert,
    "last day again": repeat_last_day,
    "trend": continue_trend,
    "common trend": continue_common_trend,
}
