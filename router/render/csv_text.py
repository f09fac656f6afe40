"""Write tables as CSV for spreadsheets: no cell can be taken for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the table as CSV with a header; None is the word ``none``.

    Text that a spreadsheet would take for a formula gets a quote before it; numbers stay numbers.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: object) -> str:
    text = "none" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) and not _NUMBER.fullmatch(text) else text
