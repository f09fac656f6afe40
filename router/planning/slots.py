"""The time grid: hours up to the horizon, then six hours, then days, with an edge at every instant that matters."""

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
    """Half-open ``[start, end)``; ``order`` inside the horizon (held whole), else outlook (a share)."""

    index: int
    start: datetime
    end: datetime
    order: bool

    @property
    def length(self) -> timedelta:
        """End less start."""
        return self.end - self.start

    @cached_property
    def hours(self) -> float:
        """Length in hours."""
        return self.length / timedelta(hours=1)

    @cached_property
    def month(self) -> str:
        """Calendar month (UTC) of the start, ``2026-11``: egress accumulates by it."""
        return self.start.strftime("%Y-%m")


def make_slots(
    now: datetime, slot: timedelta, horizon: timedelta, edges: Iterable[datetime], last: datetime
) -> tuple[Slot, ...]:
    """Slots from ``now`` to ``last`` (UTC): every ``slot`` up to ``now + horizon``, every 6 h (UTC) up to
    seven days, then midnights.

    ``edges`` (deadlines, earliest starts) are edges too, and so is each start of a month. Every slot lies
    wholly inside or outside the horizon.
    """
    end_of_orders = now + horizon
    marks = {now, min(end_of_orders, last), last}
    marks.update(edge for edge in edges if now < edge < last)
    marks.update(_steps(now, slot, min(end_of_orders, last)))
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    marks.update(m for m in _steps(midnight, _SIX_HOURS, min(now + _FINE_OUTLOOK, last)) if m > end_of_orders)
    marks.update(m for m in _steps(midnight, _DAY, last) if m > end_of_orders or m.day == 1)
    ordered = sorted(m for m in marks if now <= m <= last)
    return tuple(Slot(index, start, end, end <= end_of_orders) for index, (start, end) in enumerate(pairwise(ordered)))


def _steps(start: datetime, step: timedelta, end: datetime) -> Iterable[datetime]:
    mark = start
    while mark < end:
        yield mark
        mark += step
