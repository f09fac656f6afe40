"""Parsers of options that several commands share: moments, durations, amounts.

Each raises InvalidInputError that names the option, so that the command exits with 2.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.cli.clock import chosen_clock

if TYPE_CHECKING:
    from pricing.money import Usd


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
