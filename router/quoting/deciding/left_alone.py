"""How long a spot pool is left alone that took machines back: longer each time, forgotten in a day. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

REMEMBERED = timedelta(hours=6)
_LONGEST = timedelta(hours=6)
_MOST_DOUBLINGS = 10
# A stretch that ends less than that share later is not worth remembering.
_MUCH_LONGER = 0.1
Stretch = tuple[datetime, datetime]


def until_left_alone(lately: Iterable[Stretch], now: datetime, first: timedelta) -> datetime | None:
    """Until when a pool is left alone that was lost ``now``; None where it is left alone for about as long already.
    ``lately``: stretches, from and until, that began in the last :data:`REMEMBERED`; ``first``: the first time's."""
    times, until = _times(lately, now)
    length = min(_LONGEST, first * (1 << min(times, _MOST_DOUBLINGS)))
    return now + length if length and now + length - until > length * _MUCH_LONGER else None


def _times(lately: Iterable[Stretch], now: datetime) -> tuple[int, datetime]:
    """How many times that are past by now it was left alone, and until when it is (now: it is not)."""
    past, until = 0, None
    for at, its in sorted(lately):
        if until is not None and at >= until:
            past += 1
        until = its if until is None else max(until, its)
    if until is None:
        return 0, now
    return (past + 1, now) if until <= now else (past, until)
