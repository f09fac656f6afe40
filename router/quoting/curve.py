"""What other deadlines would cost: a curve from the earliest possible to where more time is of no more use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.quoting.figures import knee, quantiles, usd
from router.quoting.quote import Point
from router.quoting.stage import Stage

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


def curve(
    near: Sequence[Stage], far: Stage, windows: Sequence[float], start: datetime, asked: Point
) -> tuple[Point, ...]:
    """``windows``: in hours, rising; those within the clock of ``near`` are played on each of these, which have one
    clock, and the best counts; the others in ``far``. ``asked``: the point of the quote itself, which stands for the
    one next to it.

    Who has longer may do as who has less, so that no later deadline costs more at the median or the 90th percentile.
    """
    nearest = min(range(len(windows)), key=lambda i: abs(windows[i] - asked.hours))
    within = near[0].clock.tick_s * near[0].clock.ticks / 3600
    others = [_best([_point(s, h, start) for s in (near if h <= within else (far,))])
              for i, h in enumerate(windows) if i != nearest]  # fmt: skip
    found: list[Point] = []
    for p in sorted([*others, asked], key=lambda p: p.hours):
        best = found[-1] if found else p
        found.append(p if p is asked else replace(p, p50=_less(p.p50, best.p50), p90=_less(p.p90, best.p90)))
    dollars = [p.p50.dollars() if p.p50 is not None else float("inf") for p in found]
    at = knee([p.hours for p in found], dollars)
    return tuple(replace(p, knee=i == at) for i, p in enumerate(found))


def _best(points: Sequence[Point]) -> Point:
    """The cheapest of those that are as good as on time."""
    sure = max(p.on_time for p in points) - LATER
    return min((p for p in points if p.on_time >= sure),
               key=lambda p: float("inf") if p.p50 is None else p.p50.dollars())  # fmt: skip


def _less(a: Usd | None, b: Usd | None) -> Usd | None:
    return min((x for x in (a, b) if x is not None), default=None)


def _point(stage: Stage, hours: float, start: datetime) -> Point:
    """In whole ticks, rounded up."""
    ticks = min(stage.clock.ticks, math.ceil(hours * 3600 / stage.clock.tick_s - 1e-6))
    seconds = ticks * stage.clock.tick_s
    got = stage.play(ticks)
    p50, p90 = quantiles(got.usd, (0.5, 0.9))
    on_time = float(1 - got.late.mean())
    return Point(
        start + timedelta(seconds=seconds), seconds / 3600, usd(float(p50)), usd(float(p90)), on_time, knee=False
    )
