"""Options and errors that the ledger commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.console import CommandError
from router.cli.options import option_error
from router.ledger.entry import CostBasis

if TYPE_CHECKING:
    from router.ledger.month import Month


MonthOption = Annotated[str | None, typer.Option(metavar="2026-11", help="Month of the books; default: that of --now.")]
AsOfOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Leave out records after this time (ISO, with zone).")
]
ReportTimeOption = Annotated[str | None, typer.Option(metavar="TIME", help="Time of the report (ISO, with zone).")]
BasisOption = Annotated[CostBasis, typer.Option(help="Cost as billed, or with commitments spread over use.")]


def parse_month(option: str, text: str) -> Month:
    """Return the month of an option's text such as ``2026-11``. Raises InvalidInputError."""
    from router.ledger.month import Month

    try:
        return Month.parse(text)
    except ValueError as error:
        raise option_error(option, error) from None


def parse_period(text: str | None, moment: datetime, option: str = "--month") -> Month:
    """Return the month of an option, without one that of the moment. Raises InvalidInputError."""
    from router.ledger.month import Month

    return Month.of(moment) if text is None else parse_month(option, text)


@contextmanager
def translate_closed_books() -> Iterator[None]:
    """Translate the error of closed books into CommandError."""
    from router.ledger.entry import ClosedError

    try:
        yield
    except ClosedError as error:
        raise CommandError(str(error), remedy="closed books change by corrections in open ones alone") from None
