"""Options and errors that the ledger commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from router.cli.console import CommandError
from router.cli.options import option_error

if TYPE_CHECKING:
    from router.ledger.month import Month


def parse_month(option: str, text: str) -> Month:
    """Return the month of an option's text such as ``2026-11``. Raises InvalidInputError."""
    from router.ledger.month import Month

    try:
        return Month.parse(text)
    except ValueError as error:
        raise option_error(option, error) from None


@contextmanager
def translate_closed_books() -> Iterator[None]:
    """Translate the error of closed books into CommandError."""
    from router.ledger.entry import ClosedError

    try:
        yield
    except ClosedError as error:
        raise CommandError(str(error), remedy="closed books change by corrections in open ones alone") from None
