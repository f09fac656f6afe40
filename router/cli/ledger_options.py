"""Options and output that the ledger commands share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from pricing.money import Usd
from router.cli import console
from router.cli.console import CommandError
from router.cli.options import option_error
from router.files.csv_text import records_csv
from router.render.tables import format_table

if TYPE_CHECKING:
    from router.ledger.month import Month

SCHEMA_VERSION = 1


class LedgerFormat(StrEnum):
    """Output format of lists."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


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


def print_rows(
    output: LedgerFormat,
    name: str,
    rows: Sequence[dict[str, object]],
    table: Sequence[str],
    right: frozenset[str],
    empty: str,
) -> None:
    """Print rows as JSON under ``name``, as CSV with all fields, or as a table of the fields in ``table``."""
    if output is LedgerFormat.JSON:
        console.out(json.dumps({"schema_version": SCHEMA_VERSION, name: rows}, indent=2))
    elif output is LedgerFormat.CSV:
        console.out(records_csv(list(rows[0] if rows else table), rows))
    elif not rows:
        console.out(empty)
    else:
        cells = [[_cell(row[field]) for field in table] for row in rows]
        header = [field.upper().replace("_", " ") for field in table]
        console.out(format_table(header, cells, right, {}, console.screen()))


def format_exact_usd(usd: Usd) -> str:
    """Return an amount as exact text for programs."""
    return str(usd)


def _cell(value: object) -> str:
    return "" if value is None else str(value)
