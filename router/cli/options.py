"""Options that several commands share: the moment of planning, lengths of time.

Each raises InvalidInputError that names the option, so that the command exits with 2.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pricing.problems import InvalidInputError


def moment_of_planning(text: str | None) -> datetime:
    """``--now`` in UTC; without it the clock, read here and nowhere else."""
    from router.jobs.quantities import Moment

    if text is None:
        return datetime.now(UTC)  # noqa: TID251
    try:
        moment = Moment.parse(text)
    except ValueError as error:
        raise refused("--now", error) from None
    if moment.absolute is None:
        raise InvalidInputError.single(
            "is a point in time, not a length", field="--now", remedy="write 2026-11-21T18:00:00Z"
        )
    return moment.absolute


def length_of_time(option: str, text: str | None) -> timedelta | None:
    """A duration such as ``30d`` or ``18h``; None where the option was not given."""
    from router.jobs.quantities import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise refused(option, error) from None


def refused(option: str, error: ValueError) -> InvalidInputError:
    """What a parser said of an option's value, as the error of that option."""
    return InvalidInputError.single(str(error), field=option, remedy=getattr(error, "remedy", ""))
