"""Parsers of options that several commands share: moments, durations, amounts.

Each raises InvalidInputError that names the option, so that the command exits with 2.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError

if TYPE_CHECKING:
    from pricing.money import Usd


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


def parse_now(text: str | None) -> datetime:
    """Return ``--now`` in UTC, or the current time without it."""
    from router.jobs.quantities import Moment

    if text is None:
        return chosen_clock()()
    try:
        moment = Moment.parse(text)
    except ValueError as error:
        raise option_error("--now", error) from None
    if moment.absolute is None:
        raise InvalidInputError.single(
            "is a point in time, not a length", field="--now", remedy="write 2026-11-21T18:00:00Z"
        )
    return moment.absolute


def parse_as_of(text: str | None) -> datetime | None:
    """Return ``--now`` as the moment after which records are left out, or None without it."""
    return None if text is None else parse_now(text)


def parse_duration_option(option: str, text: str | None) -> timedelta | None:
    """Return a duration such as ``30d`` or ``18h``, or None if the option was not given."""
    from router.jobs.quantities import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise option_error(option, error) from None


def parse_length_option(option: str, text: str, least: timedelta) -> timedelta:
    """Return a duration of at least ``least``."""
    length = parse_duration_option(option, text)
    if length is None or length < least:
        raise InvalidInputError.single(f"{text} is shorter than {least}", field=option)
    return length


def parse_usd_option(option: str, text: str | None) -> Usd | None:
    """Return an amount such as ``5000`` or ``$1,250.50``, not below zero, or None if the option was not given."""
    from pricing.money import Usd

    if text is None:
        return None
    try:
        amount = Usd.parse(text.strip().removeprefix("$").replace(",", ""))
    except ValueError as error:
        raise option_error(option, error) from None
    if amount < Usd(0):
        raise InvalidInputError.single(f"{text} is below zero", field=option, remedy="write an amount such as 5000")
    return amount


def option_error(option: str, error: ValueError) -> InvalidInputError:
    """Return a parser's error as an InvalidInputError of the option."""
    return InvalidInputError.single(str(error), field=option, remedy=getattr(error, "remedy", ""))
