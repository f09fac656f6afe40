"""Tables described once: text, wide text, Markdown, CSV and JSON records follow from a list of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Generic, TypeVar

from pricing.money import Usd, UsdPerHour
from router.files.csv_text import csv_text
from router.render.tables import PLAIN, Screen, clip_text, format_table, markdown_table

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[R]):
    """One value of each row: its field in CSV and JSON, and how a table for people shows it.

    ``name`` is the field; "" leaves it out of CSV and JSON. ``heading`` stands above it in text; None leaves it out of
    text. ``value`` takes it from a row, ``show`` makes its text, ``unknown`` is the text of None. ``wide`` is True for
    a column of the wide table alone, False for one of the narrow table alone. In the narrow table ``width`` is the
    greatest width of a cell, and a column with ``least`` gives way down to that where the screen is too narrow.
    """

    name: str
    value: Callable[[R], object]
    heading: str | None = None
    show: Callable[[Any], str] = str
    right: bool = False
    width: int | None = None
    least: int | None = None
    wide: bool | None = None
    unknown: str = ""

    def cell(self, row: R) -> str:
        """Return the text of the row's value."""
        value = self.value(row)
        return self.unknown if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class RecordTable(Generic[R]):
    """A table of rows of one kind, in the order of its columns. ``clip`` shortens cells of columns with ``least``."""

    columns: tuple[TableColumn[R], ...]
    clip: Callable[[str, int], str] = clip_text

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields of CSV and JSON."""
        return tuple(column.name for column in self.columns if column.name)

    def text(self, rows: Iterable[R], screen: Screen = PLAIN, *, wide: bool = False) -> str:
        """Return the table as text; the wide one clips nothing."""
        columns = [c for c in self.columns if c.heading is not None and c.wide in (None, wide)]
        header = [column.heading or "" for column in columns]
        cells = [[column.cell(row) for column in columns] for row in rows]
        right = frozenset(column.heading or "" for column in columns if column.right)
        widths: dict[str, int] = {}
        if not wide:
            widths = {column.heading or "": column.width for column in columns if column.width is not None}
            widths |= self._yield_width(columns, cells, screen)
        return format_table(header, cells, right, widths, screen)

    def _yield_width(
        self, columns: Sequence[TableColumn[R]], cells: Sequence[list[str]], screen: Screen
    ) -> dict[str, int]:
        """Shorten cells until the table fits, the last column first, and return the widths of such columns."""
        heads = [column.heading or "" for column in columns]
        sizes = [max(len(head), *(len(row[i]) for row in cells), 0) for i, head in enumerate(heads)]
        widths = {}
        for i, column in reversed([*enumerate(columns)]):
            if column.least is not None:
                over = sum(sizes) + len(sizes) - 1 - screen.width
                sizes[i] -= max(0, min(over, sizes[i] - column.least))
                widths[heads[i]] = sizes[i]
                for row in cells:
                    row[i] = self.clip(row[i], sizes[i])
        return widths

    def markdown(self, rows: Iterable[R]) -> str:
        """Return the narrow table as GitHub's Markdown."""
        columns = [c for c in self.columns if c.heading is not None and not c.wide]
        header = [column.heading or "" for column in columns]
        right = frozenset(column.heading or "" for column in columns if column.right)
        return markdown_table(header, [[column.cell(row) for column in columns] for row in rows], right)

    def record(self, row: R) -> dict[str, object]:
        """Return the fields of a row as JSON has them: money and decimals as exact text, moments in ISO 8601."""
        return {column.name: plain_value(column.value(row)) for column in self.columns if column.name}

    def records(self, rows: Iterable[R]) -> list[dict[str, object]]:
        """Return the record of each row."""
        return [self.record(row) for row in rows]

    def csv(self, rows: Iterable[R], *, unknown: str = "") -> str:
        """Return CSV with the fields of the records; None is the word ``unknown``, lists are joined by commas."""
        lines = ([_csv_value(value) for value in self.record(row).values()] for row in rows)
        return csv_text(self.fields, lines, unknown=unknown)


def plain_value(value: object) -> object:
    """Return a value as JSON has it: money and decimals as exact text, dates and moments in ISO 8601."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    return str(value) if isinstance(value, Usd | UsdPerHour | Decimal) else value


def _csv_value(value: object) -> object:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else value
