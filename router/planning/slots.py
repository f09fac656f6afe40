"""Divide time into slots: hours up to the horizon, then six hours, then days, with edges at given instants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise

_SIX_HOURS = timedelta(hours=6)
_DAY = timedelta(days=1)
_FINE_OUTLOOK = timedelta(days=7)


@dataclass(frozen=True)
class Slot:
    """A half-open period ``[start, end)``.

    With ``order`` it is inside the horizon and held whole; else it belongs to the outlook and is held by a share.
    """

    index: int
    start: datetime
    end: datetime
    order: bool

    @property
    def length(self) -> timedelta:
        """Return end less start."""
        return self.end - self.start

    @cached_property
    def hours(self) -> float:
        """Return the length in hours."""
        return self.length / timedelta(hours=1)

    @cached_property
    def month(self) -> str:
        """Return the calendar month (UTC) of the start, ``2026-11``: egress accumulates by it."""
        return self.start.strftime("%Y-%m")


def make_slots(
    now: datetime, slot: timedelta, horizon: timedelta, edges: Iterable[datetime], last: datetime
) -> tuple[Slot, ...]:
    """Return slots from ``now`` to ``last`` (UTC).

    Slots are ``slot`` long up to ``now + horizon``, then end every 6 h (UTC) up to seven days, then at midnights.
    ``edges`` (deadlines, earliest starts) are edges too, and so is each start of a month. Every slot lies wholly inside
    or outside the horizon.
    """
    end_of_orders = now + horizon
    edge_times = {now, min(end_of_orders, last), last}
    edge_times.update(edge for edge in edges if now < edge < last)
    edge_times.update(_steps(now, slot, min(end_of_orders, last)))
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    edge_times.update(m for m in _steps(midnight, _SIX_HOURS, min(now + _FINE_OUTLOOK, last)) if m > end_of_orders)
    edge_times.update(m for m in _steps(midnight, _DAY, last) if m > end_of_orders or m.day == 1)
    ordered = sorted(m for m in edge_times if now <= m <= last)
    return tuple(Slot(index, start, end, end <= end_of_orders) for index, (start, end) in enumerate(pairwise(ordered)))


def _steps(start: datetime, step: timedelta, end: datetime) -> Iterable[datetime]:
    mark = start
    while mark < end:
        yield mark
        mark += step
