"""Clock of all commands, read nowhere else. The sandbox can run faster than real time."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime

from pricing.problems import InvalidInputError

VARIABLE = "STEPFARE_CLOCK"
_FASTEST = 100_000


def wall_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)  # noqa: TID251


def chosen_clock() -> Callable[[], datetime]:
    """Return the clock that ``STEPFARE_CLOCK`` selects; without it the wall clock.

    ``60@2026-11-21T18:00:00Z`` runs sixty times as fast as real time since that moment. Raises InvalidInputError for
    any other value.
    """
    text = os.environ.get(VARIABLE)  # noqa: TID251
    if not text:
        return wall_clock
    speed_text, _, since_text = text.partition("@")
    try:
        speed = int(speed_text)
        since = datetime.fromisoformat(since_text)
        if not 1 <= speed <= _FASTEST or since.tzinfo is None:
            raise ValueError(text)
        _ = since.astimezone(UTC) + (wall_clock() - since) * speed
    except (ValueError, OverflowError):
        what = f"{text!r} is no clock"
        raise InvalidInputError.single(what, field=VARIABLE, remedy="write 60@2026-11-21T18:00:00Z") from None
    return lambda: since.astimezone(UTC) + (wall_clock() - since) * speed
