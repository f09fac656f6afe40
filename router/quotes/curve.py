"""The curve of costs over deadlines, from the earliest possible one to where more time is of no more use.

A later deadline never costs more than an earlier one: its run is the best of those simulated for it and for all before
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from router.quotes.quote import Point
from router.quotes.runner import ScenarioOutcomes, ScenarioRunner
from router.quotes.statistics import QuoteLevels, find_knee, quantiles, summarise_usd
from router.spot.simulator.traces import Floats

ON_TIME_TOLERANCE: Final = 0.02  # probabilities of being on time that differ by less count as equal
POINTS: Final = 5  # deadlines of the curve, with that of the request; each other one is a search of its own
_LONGEST: Final = 3.0  # factor of the longer of the requested and the earliest window
_SPARE: Final = 1.3  # factor of the hours that the cheapest option is expected to need


def loosest_h(earliest_h: float, asked_h: float, cheapest_h: float) -> float:
    """Return the hours to the loosest deadline worth simulating.

    The cheapest option is expected to be done well before it.
    """
    useful = max(_SPARE * cheapest_h, 1.5 * earliest_h)
    return min(max(useful, 1.1 * asked_h), _LONGEST * max(asked_h, earliest_h))


def windows_h(earliest_h: float, loosest_h: float) -> tuple[float, ...]:
    """Return the hours of the windows, the same factor apart."""
    return tuple(float(x) for x in np.geomspace(earliest_h, max(loosest_h, earliest_h), POINTS))


def ceil_minute(moment: datetime) -> datetime:
    """Return the whole minute at or after the moment."""
    return moment + (-(moment - datetime.min.replace(tzinfo=moment.tzinfo)) % timedelta(minutes=1))


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedDeadline:
    """A choice of options as it was simulated with a deadline ``window_s`` after the start.

    ``usd`` and ``finish_s`` are what is quoted of its draws, in order. ``cost`` orders simulations: expected dollars,
    then the 90 % figure, where the first has no end. ``by_s`` is the deadline that it is offered for, this one or a
    later one.
    """

    stage: ScenarioRunner
    played: ScenarioOutcomes
    usd: Floats
    finish_s: Floats
    cost: tuple[float, float]
    window_s: int
    by_s: int

    @classmethod
    def of(
        cls, stage: ScenarioRunner, played: ScenarioOutcomes, window_s: int, levels: QuoteLevels
    ) -> SimulatedDeadline:
        """Return the simulation, read at these levels."""
        dollars, finish_s = levels.cost.quoted(played.usd), levels.finish.quoted(played.finish_s)
        cost = float(dollars.mean()), float(quantiles(dollars, (0.9,))[0])
        return cls(stage, played, dollars, finish_s, cost, window_s, window_s)

    @property
    def on_time(self) -> float:
        """The share of draws that are done by the deadline that it is offered for."""
        return float(1 - self.played.late.mean())

    def offered_by(self, seconds: int) -> SimulatedDeadline:
        """Return the same run, offered for a later deadline, for which none of its draws is later."""
        late = self.played.late & (self.played.finish_s > seconds)
        return replace(self, played=replace(self.played, late=late), by_s=seconds)


def pick_cheapest(simulations: Sequence[SimulatedDeadline]) -> SimulatedDeadline:
    """Return the cheapest of those that are as good as on time.

    It excludes those that may never end, unless all may.
    """
    ends = [s for s in simulations if math.isfinite(s.cost[0])] or simulations
    sure = max(s.on_time for s in ends) - ON_TIME_TOLERANCE
    return min((s for s in ends if s.on_time >= sure), key=lambda s: s.cost)


def best_by_deadline(by_deadline: Mapping[int, Sequence[SimulatedDeadline]]) -> dict[int, SimulatedDeadline]:
    """Return the best simulation for each deadline of ``by_deadline``, in seconds.

    None costs more than the best for an earlier deadline: a run done by then is done by the later one too.
    """
    best: dict[int, SimulatedDeadline] = {}
    previous: SimulatedDeadline | None = None
    for seconds in sorted(by_deadline):
        candidate = pick_cheapest(by_deadline[seconds])
        previous = best[seconds] = (
            previous.offered_by(seconds) if previous and previous.cost < candidate.cost else candidate
        )
    return best


def build_curve(
    best: Mapping[int, SimulatedDeadline], start: datetime, asked_s: int, deadline: datetime
) -> tuple[Point, ...]:
    """Return a point for each of these, the one of ``asked_s`` at the exact deadline of the request."""
    points = [build_point(s, start, deadline if seconds == asked_s else None) for seconds, s in sorted(best.items())]
    dollars = [p.mean.dollars() if p.mean is not None else float("inf") for p in points]
    at = find_knee([p.hours for p in points], dollars)
    return tuple(replace(p, knee=i == at) for i, p in enumerate(points))


def build_point(s: SimulatedDeadline, start: datetime, deadline: datetime | None = None) -> Point:
    """Return a point of the curve; ``deadline`` is the exact one, where it is not a whole number of ticks."""
    deadline = deadline or start + timedelta(seconds=s.by_s)
    cost, hours = summarise_usd(s.usd), (deadline - start) / timedelta(hours=1)
    return Point(deadline, hours, cost.p50, cost.p90, s.on_time, knee=False, mean=cost.mean, draws=s.usd.size)
