"""Declare and parse options that several commands share: moments, durations, amounts, formats, offers, months.

Parsers raise InvalidInputError that names the option, so that the command exits with 2.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import typer

from pricing.problems import InvalidInputError
from router.cli.console import CommandError
from router.ledger.entry import ClosedError, CostBasis

if TYPE_CHECKING:
    from pricing.money import Usd
    from router.ledger.month import Month

T = TypeVar("T")
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
        raise option_error(VARIABLE, f"{text!r} is no clock", "write 60@2026-11-21T18:00:00Z") from None
    return lambda: since.astimezone(UTC) + (wall_clock() - since) * speed


def parse_now(text: str | None) -> datetime:
    """Return ``--now`` in UTC, or the current time without it."""
    from router.jobs.quantities import Moment

    if text is None:
        return chosen_clock()()
    moment = parse_option("--now", text, Moment.parse).absolute
    if moment is None:
        raise option_error("--now", "is a point in time, not a length", "write 2026-11-21T18:00:00Z")
    return moment


def parse_as_of(text: str | None) -> datetime | None:
    """Return ``--now`` as the moment after which records are left out, or None without it."""
    return None if text is None else parse_now(text)


def parse_duration_option(option: str, text: str | None) -> timedelta | None:
    """Return a duration such as ``30d`` or ``18h``, or None if the option was not given."""
    from router.jobs.quantities import parse_duration

    return None if text is None else parse_option(option, text, parse_duration)


def parse_length_option(option: str, text: str, least: timedelta) -> timedelta:
    """Return a duration of at least ``least``."""
    length = parse_duration_option(option, text)
    if length is None or length < least:
        raise option_error(option, f"{text} is shorter than {least}")
    return length


def parse_usd_option(option: str, text: str | None) -> Usd | None:
    """Return an amount such as ``5000`` or ``$1,250.50``, not below zero, or None if the option was not given."""
    from pricing.money import Usd

    if text is None:
        return None
    amount = parse_option(option, text.strip().removeprefix("$").replace(",", ""), Usd.parse)
    if amount < Usd(0):
        raise option_error(option, f"{text} is below zero", "write an amount such as 5000")
    return amount


def option_error(option: str, what: str | ValueError, remedy: str = "") -> InvalidInputError:
    """Return the error of an option: what is wrong with it, or what its parser raised, and what to write instead."""
    return InvalidInputError.single(str(what), field=option, remedy=remedy or getattr(what, "remedy", ""))


def parse_option(option: str, text: str, parse: Callable[[str], T]) -> T:
    """Return what a parser makes of an option's text; its ValueError becomes the option's error."""
    try:
        return parse(text)
    except ValueError as error:
        raise option_error(option, error) from None


OUTPUT: Final = typer.Option("--output", "-o", help="Format.")
TableFormat = Literal["table", "json"]
TextFormat = Literal["text", "json"]
ListFormat = Literal["table", "json", "csv"]
WideListFormat = Literal["table", "wide", "json", "csv"]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to this file.")]
OutInsteadOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of standard output.")
]
NewFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="New file to write, compressed.")]
TableOutput = Annotated[TableFormat, OUTPUT]
TextOutput = Annotated[TextFormat, OUTPUT]
ListOutput = Annotated[ListFormat, OUTPUT]
WideListOutput = Annotated[WideListFormat, OUTPUT]

#: Rows that people see unless they ask for more; JSON and CSV have all.
DEFAULT_ROWS: Final = 30

CloudOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this cloud; repeatable.")]
CloudsFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The clouds file.")]
RegionOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only this region: us-east-1 or aws/us-east-1.")
]
MachineTypeOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this machine type.")]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help=f"Rows to show; 0 is all. Default: {DEFAULT_ROWS}, all for json and csv."),
]


def count_rows(limit: int | None, *, machine_readable: bool) -> int:
    """Return how many rows to show; 0 is all. ``limit`` None is the default of the format."""
    if limit is not None:
        return limit
    return 0 if machine_readable else DEFAULT_ROWS


MonthOption = Annotated[str | None, typer.Option(metavar="2026-11", help="Month of the books; default: that of --now.")]
AsOfOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Leave out records after this time (ISO, with zone).")
]
ReportTimeOption = Annotated[str | None, typer.Option(metavar="TIME", help="Time of the report (ISO, with zone).")]
BasisOption = Annotated[CostBasis, typer.Option(help="Cost as billed, or with commitments spread over use.")]


def parse_month(option: str, text: str) -> Month:
    """Return the month of an option's text such as ``2026-11``. Raises InvalidInputError."""
    from router.ledger.month import Month

    return parse_option(option, text, Month.parse)


def parse_period(text: str | None, moment: datetime, option: str = "--month") -> Month:
    """Return the month of an option, without one that of the moment. Raises InvalidInputError."""
    from router.ledger.month import Month

    return Month.of(moment) if text is None else parse_month(option, text)


@contextmanager
def translate_closed_books() -> Iterator[None]:
    """Translate the error of closed books into CommandError."""
    try:
        yield
    except ClosedError as error:
        raise CommandError(str(error), remedy="closed books change by corrections in open ones alone") from None
