"""Make up months of spending, with the three months before each, for forecasts of the month's end.

Jobs run at night: a Poisson number of them, each of lognormal cost, under a price level that drifts from day to day.
Two teams share them; fewer run at weekends. A kind adds its own trait. All draws come from the kind and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from router.ledger.month import Month
from tests.support.showback_reports import cost

_DAY: Final = timedelta(days=1)
_HISTORY_DAYS: Final = 92
_NIGHT_HOURS: Final = 6
_SATURDAY: Final = 5


@dataclass(frozen=True, slots=True)
class MadeUpCharge:
    """A row of costs as :func:`tests.support.reconciled.facts` takes it, and when the books have it."""

    known_at: datetime
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MadeUpMonth:
    """A month, and its charges with those of the time before it."""

    month: Month
    charges: tuple[MadeUpCharge, ...]

    def rows_known_at(self, now: datetime) -> list[dict[str, Any]]:
        """Return the rows that the books have at a moment."""
        return [charge.row for charge in self.charges if charge.known_at <= now]

    @property
    def total(self) -> Decimal:
        """Return the cost of the month, once all of it is known."""
        costs = [charge.row["effective"] for charge in self.charges if charge.row["month"] == str(self.month)]
        return sum(costs, Decimal(0))


@dataclass(frozen=True, slots=True)
class NightlyUse:
    """Dollars of each team (row) on each day (column) from ``begin`` on; the month begins at column ``first``."""

    begin: datetime
    first: int
    dollars: np.ndarray[Any, np.dtype[np.float64]]


Draw = np.random.Generator


def make_month(kind: str, seed: int) -> MadeUpMonth:
    """Return the month of a kind and seed; KeyError for a kind that is not in ``KINDS``."""
    draw = np.random.default_rng([list(KINDS).index(kind), seed])
    month = Month(2026, int(draw.integers(1, 13)))
    begin = month.begins - _HISTORY_DAYS * _DAY
    days = (month.ends - begin) // _DAY
    return KINDS[kind](draw, month, NightlyUse(begin, _HISTORY_DAYS, _draw_steady(draw, begin, days)))


def _draw_steady(draw: Draw, begin: datetime, days: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return dollars by team and day, with fewer jobs at weekends and a price level of autocorrelation 0.8."""
    jobs_a_night, weekend = draw.uniform(4, 12), draw.uniform(0.2, 0.7)
    dollars_a_job, share = np.exp(draw.normal(5.0, 0.8)), draw.uniform(0.4, 0.7)
    price = np.zeros(days)
    for day in range(1, days):
        price[day] = 0.8 * price[day - 1] + draw.normal(0, 0.06)
    is_weekend = np.array([(begin + day * _DAY).weekday() >= _SATURDAY for day in range(days)])
    expected = jobs_a_night * np.where(is_weekend, weekend, 1.0)
    dollars = np.zeros((2, days))
    for team, part in enumerate((share, 1 - share)):
        for day, jobs in enumerate(draw.poisson(expected * part)):
            dollars[team, day] = dollars_a_job * np.exp(price[day]) * draw.lognormal(-0.18, 0.6, jobs).sum()
    return dollars


def _steady(_draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    return _month_of(month, use)


def _growing(draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    """Grow by 15 to 60 % in 30 days: by equal shares in half of the months, else by as many dollars each day."""
    growth, months = draw.uniform(0.15, 0.6), (np.arange(use.dollars.shape[1]) - use.first) / 30
    by_shares = (1 + growth) ** months
    by_dollars = np.maximum(1 + growth * months, 0.05)
    level = by_shares if draw.random() < 0.5 else by_dollars
    return _month_of(month, replace(use, dollars=use.dollars * level))


def _bursts(draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    """Add campaigns of the first team: one begins each ten days on average, for 1 to 7 days, at 2 to 8 usual days."""
    dollars, days = use.dollars.copy(), use.dollars.shape[1]
    usual = dollars.sum(axis=0).mean()
    for day in np.flatnonzero(draw.random(days) < 0.1):
        length = int(draw.integers(1, 8))
        campaign = usual * draw.uniform(2, 8) * draw.lognormal(-0.045, 0.3, length)
        dollars[0, day : day + length] += campaign[: days - day]
    return _month_of(month, replace(use, dollars=dollars))


def _fee(draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    """Charge a fee on each 28th, of 20 to 80 % of a month's usage, which differs by 3 % from month to month."""
    usual = use.dollars.sum(axis=0).mean() * 30 * draw.uniform(0.2, 0.8)
    charges = list(_month_of(month, use).charges)
    moment = use.begin
    while moment < month.ends:
        if moment.day == 28:
            amount = f"{usual * draw.normal(1, 0.03):.2f}"
            row = cost(amount, source="added", category="Purchase", what="other", cloud="aws", month=f"{moment:%Y-%m}")
            charges.append(MadeUpCharge(moment, {**row, "start": moment, "end": moment + _DAY}))
        moment += _DAY
    return MadeUpMonth(month, tuple(charges))


def _team_stops(draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    """Stop the first team on a day from the 6th to the 18th."""
    dollars = use.dollars.copy()
    dollars[0, use.first + int(draw.integers(5, 18)) :] = 0
    return _month_of(month, replace(use, dollars=dollars))


def _gaps(draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    """Record two stretches of two days, from the 2nd to the 9th and the 10th to the 15th, after the month alone."""
    late = {int(draw.integers(2, 8)), int(draw.integers(10, 14))}
    missing = {use.begin + (use.first + day - 1 + more) * _DAY for day in late for more in (0, 1)}
    charges = _month_of(month, use).charges
    return MadeUpMonth(
        month,
        tuple(
            replace(each, known_at=month.ends + _DAY) if each.row["start"].replace(hour=0) in missing else each
            for each in charges
        ),
    )


def _new(_draw: Draw, month: Month, use: NightlyUse) -> MadeUpMonth:
    """Begin with the month: nothing is on record before it."""
    return _month_of(month, replace(use, begin=month.begins, first=0, dollars=use.dollars[:, use.first :]))


def _month_of(month: Month, use: NightlyUse) -> MadeUpMonth:
    charges = []
    for (team, day), dollars in np.ndenumerate(use.dollars):
        if dollars <= 0:
            continue
        start = use.begin + day * _DAY + timedelta(hours=1)
        end = start + timedelta(hours=_NIGHT_HOURS)
        named = {"team": ("research", "product")[team], "job": "nightly", "cloud": "aws", "month": f"{start:%Y-%m}"}
        charges.append(MadeUpCharge(end, cost(f"{dollars:.2f}", start=start, end=end, **named)))
    return MadeUpMonth(month, tuple(charges))


#: Kinds that the forecast is developed on, then shifts that it was not made for.
FITTED: Final = ("steady", "growing", "bursts", "fee")
SHIFTED: Final = ("team-stops", "gaps", "new")
KINDS: Final[Mapping[str, Callable[[Draw, Month, NightlyUse], MadeUpMonth]]] = {
    "steady": _steady,
    "growing": _growing,
    "bursts": _bursts,
    "fee": _fee,
    "team-stops": _team_stops,
    "gaps": _gaps,
    "new": _new,
}
