"""The curve of costs over deadlines, from the earliest possible one to where more time is of no more use.

A later deadline never costs more than an earlier one: its run is the best of those simulated for it and for all before
it. Other deadlines are read off the curve, between the simulated ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.quotes.quote import Point, Quote
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


@dataclass(frozen=True, slots=True)
class DeadlineFigure:
    """The cost of a deadline, read between the simulated deadlines before and after it.

    ``is_exact``: it was simulated itself. Otherwise the figures lie on the straight line between ``before`` and
    ``after``; where ``after`` is None, the deadline is later than all of them, and the expected cost is at most that of
    the last.
    """

    deadline: datetime
    mean: Usd | None
    p90: Usd | None
    on_time: float
    before: Point
    after: Point | None

    @property
    def is_exact(self) -> bool:
        return self.before.deadline == self.deadline


def deadline_figure(quote: Quote, deadline: datetime) -> DeadlineFigure | None:
    """Return what the deadline costs; None before the earliest one that was simulated."""
    points = _points(quote)
    before = next((p for p in reversed(points) if p.deadline <= deadline), None)
    if before is None:
        return None
    after = next((p for p in points if p.deadline > deadline), None)
    if after is None or before.deadline == deadline:
        return DeadlineFigure(deadline, before.mean, before.p90, before.on_time, before, after)
    share = (deadline - before.deadline) / (after.deadline - before.deadline)
    return DeadlineFigure(
        deadline,
        _between(before.mean, after.mean, share),
        _between(before.p90, after.p90, share),
        before.on_time + (after.on_time - before.on_time) * share,
        before,
        after,
    )


def _points(quote: Quote) -> list[Point]:
    """Return every deadline that was simulated, the earliest first; of equal ones that with the quote's own figures."""
    hours = (quote.deadline - quote.start).total_seconds() / 3600
    usd = quote.usd
    asked = Point(quote.deadline, hours, usd.p50, usd.p90, quote.on_time, knee=False, mean=usd.mean, draws=quote.draws)
    around = [p for p in (quote.hour_earlier, quote.hour_later) if p is not None]
    found = {p.deadline: p for p in (*quote.curve, *around, asked)}
    return [found[at] for at in sorted(found)]


def _between(first: Usd | None, last: Usd | None, share: float) -> Usd | None:
    """Return the amount on the straight line, to the cent; None where either has no end."""
    if first is None or last is None:
        return None
    nanos = first.nanos + (last.nanos - first.nanos) * share
    return Usd(round(nanos / 1e7) * 10**7)
