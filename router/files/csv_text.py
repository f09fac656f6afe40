"""Write tables as CSV for spreadsheets: the only writer of CSV for people, so that no cell can be taken for a formula.

FOCUS files are for machines, and have a writer of their own (:mod:`router.showback.focus.charge_files`): there a quote
before a value would change it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

# Characters that begin a formula in a spreadsheet, in their full-width forms too (OWASP ASVS 1.2.10).
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]], *, unknown: str = "") -> str:
    """Return the table as CSV with a header; None is the word ``unknown``.

    Text that a spreadsheet would take for a formula gets a quote before it; numbers stay numbers.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    # The csv module leaves a lone carriage return bare, and readers take it for the end of the row.
    quoting_writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in (header, *rows):
        cells = [unknown if value is None else _safe(value) for value in row]
        (quoting_writer if any("\r" in str(cell) for cell in cells) else writer).writerow(cells)
    return stream.getvalue()


def records_csv(fields: Sequence[str], records: Iterable[Mapping[str, object]]) -> str:
    """Return the records as CSV with these fields; what a record does not have is empty."""
    return csv_text(fields, ([record.get(name) for name in fields] for record in records))


def escape_formula(text: str) -> str:
    """Return the text such that a spreadsheet takes it neither for a formula nor, with a sign, for a number."""
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text


def _safe(value: object) -> object:
    """Return a cell; of numbers nothing is changed, also of those in text; whatever else there is is text."""
    text = str(value)
    return value if isinstance(value, bool | int | float) or _NUMBER.fullmatch(text) else escape_formula(text)
