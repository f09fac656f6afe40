"""What a plan orders: whole gangs, with the money that they put at risk. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pricing.money import Usd, UsdPerHour
from router.planning.plan import Line, Plan


@dataclass(frozen=True, slots=True)
class Order:
    """One gang for one stretch of time: one line, or two with an on-demand core, or one a zone."""

    job: str
    gang: str
    start: datetime
    end: datetime
    lines: tuple[Line, ...]

    @property
    def machines(self) -> int:
        """Of the whole gang."""
        return sum(line.machines for line in self.lines)

    @property
    def expected_usd(self) -> Usd:
        """What the plan expects it to cost."""
        return Usd.total(line.cost_usd for line in self.lines)

    @property
    def at_risk_usd(self) -> Usd:
        """The most it may cost: the ceiling of every line for all the time that it is held."""
        return Usd.total(line.max_usd_per_hour.over(line.end - line.start) for line in self.lines)

    @property
    def ceiling(self) -> UsdPerHour:
        """The dearest hour of the gang at which it may still be bought."""
        return UsdPerHour(sum(line.max_usd_per_hour.nanos for line in self.lines))


def orders_of(plan: Plan) -> tuple[Order, ...]:
    """The gangs that can be ordered (not the outlook, nothing that is only shown), by start, job and gang."""
    lines = [line for line in plan.lines if line.kind == "order" and line.provisionable]
    return tuple(sorted(_gathered(lines), key=lambda order: (order.start, order.job, order.gang)))


def _gathered(lines: Iterable[Line]) -> Iterable[Order]:
    def key(line: Line) -> tuple[str, str, datetime, datetime]:
        return (line.job, line.gang, line.start, line.end)

    for (job, gang, start, end), group in groupby(sorted(lines, key=key), key):
        yield Order(job, gang, start, end, tuple(group))
