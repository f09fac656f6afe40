"""Group the lines of a plan into orders: whole gangs, with the money that they put at risk. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pricing.money import Usd, UsdPerHour
from router.planning.document.plan import Line, Plan


@dataclass(frozen=True, slots=True)
class Order:
    """One gang for one span of time: one line, two with an on-demand core, or one per zone or machine type."""

    job: str
    gang: str
    start: datetime
    end: datetime
    lines: tuple[Line, ...]

    @property
    def machines(self) -> int:
        """Return the number of machines of the whole gang."""
        return sum(line.machines for line in self.lines)

    @property
    def expected_usd(self) -> Usd:
        """Return what the plan expects the gang to cost."""
        return Usd.total(line.cost_usd for line in self.lines)

    @property
    def at_risk_usd(self) -> Usd:
        """Return the most that the gang may cost: the ceiling of every line for all its time."""
        return Usd.total(line.at_risk_usd for line in self.lines)

    @property
    def ceiling(self) -> UsdPerHour:
        """Return the highest price per hour at which the gang may still be bought."""
        return UsdPerHour(sum(line.max_usd_per_hour.nanos for line in self.lines))


def orders_of(plan: Plan) -> tuple[Order, ...]:
    """Return the gangs of the plan that can be ordered, by start, job and gang.

    Lines of the outlook and lines that are only shown are left out.
    """

    def key(line: Line) -> tuple[str, str, datetime, datetime]:
        return (line.job, line.gang, line.start, line.end)

    lines = sorted((line for line in plan.lines if line.orderable), key=key)
    orders = [Order(*order, tuple(group)) for order, group in groupby(lines, key)]
    return tuple(sorted(orders, key=lambda order: (order.start, order.job, order.gang)))
