"""What other deadlines would cost: a curve from the earliest possible to where more time is of no more use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.quoting.quotes.figures import Levels, knee, quantiles, usd
from router.quoting.quotes.quote import Point
from router.quoting.quotes.stage import Clock, Played

LATER: Final = 0.02  # of the probability of being on time: as good as
POINTS: Final = 8  # beside the deadline that was asked for
_LONGEST: Final = 3.0  # times the longer of what was asked for and the earliest
_SPARE: Final = 1.3  # of the hours that the cheapest place is expected to need


def loosest_h(earliest_h: float, asked_h: float, cheapest_h: float) -> float:
    """Hours to the loosest deadline worth asking: the cheapest place is expected to be done well before."""
    useful = max(_SPARE * cheapest_h, 1.5 * earliest_h)
    return min(max(useful, 1.1 * asked_h), _LONGEST * max(asked_h, earliest_h))


def windows_h(earliest_h: float, loosest_h: float) -> tuple[float, ...]:
    """Hours of the windows, the same factor apart."""
    return tuple(float(x) for x in np.geomspace(earliest_h, max(loosest_h, earliest_h), POINTS))


def ticks_of(hours: float, clock: Clock) -> int:
    """In whole ticks, rounded up; no more than the clock has."""
    return min(clock.ticks, math.ceil(hours * 3600 / clock.tick_s - 1e-6))


def curve(found: Mapping[float, Sequence[Point]], asked: Point) -> tuple[Point, ...]:
    """``found``: by hours of the window what there is for it, of which the best counts. ``asked``: the point of the
    quote itself, which stands for the one next to it.

    Who has longer may do as who has less, so that no later deadline costs more at the median or the 90th percentile.
    """
    nearest = min(found, key=lambda h: abs(h - asked.hours))
    others = [_best(points) for h, points in found.items() if h != nearest]
    monotone: list[Point] = []
    for p in sorted([*others, asked], key=lambda p: p.hours):
        best = monotone[-1] if monotone else p
        monotone.append(p if p is asked else replace(p, p50=_less(p.p50, best.p50), p90=_less(p.p90, best.p90)))
    dollars = [p.p50.dollars() if p.p50 is not None else float("inf") for p in monotone]
    at = knee([p.hours for p in monotone], dollars)
    return tuple(replace(p, knee=i == at) for i, p in enumerate(monotone))


def point(got: Played, hours: float, clock: Clock, start: datetime, levels: Levels) -> Point:
    """Of what was played with a deadline of so many hours."""
    seconds = ticks_of(hours, clock) * clock.tick_s
    p50, p90 = quantiles(levels.cost.quoted(got.usd), (0.5, 0.9))
    on_time = float(1 - got.late.mean())
    return Point(
        start + timedelta(seconds=seconds), seconds / 3600, usd(float(p50)), usd(float(p90)), on_time, knee=False
    )


def _best(points: Sequence[Point]) -> Point:
    """The cheapest of those that are as good as on time."""
    sure = max(p.on_time for p in points) - LATER
    return min((p for p in points if p.on_time >= sure),
               key=lambda p: float("inf") if p.p50 is None else p.p50.dollars())  # fmt: skip


def _less(a: Usd | None, b: Usd | None) -> Usd | None:
    return min((x for x in (a, b) if x is not None), default=None)
