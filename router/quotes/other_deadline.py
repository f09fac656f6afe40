"""Read what another deadline costs off the curve of a quote, without a new simulation. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pricing.money import Usd
from router.quotes.quote import Point, Quote


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
        """Return whether the deadline was simulated itself."""
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
