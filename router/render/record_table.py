"""Tables described once: text, wide text, CSV and JSON records follow from a list of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from pricing.money import Usd, UsdPerHour
from router.files.csv_text import csv_text
from router.render.tables import PLAIN, Screen, clip_text, format_table

R = TypeVar("R")
#: Version of the JSON documents that commands print.
SCHEMA_VERSION: Final = 1


def json_document(members: Mapping[str, object], *, ascii_only: bool = True) -> str:
    """Return a document that a command prints for programs: the version of its schema, then these members."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **members}, indent=2, ensure_ascii=ascii_only) + "\n"


def plain_value(value: object) -> object:
    """Return a value as JSON has it: exact amounts as text, moments in ISO 8601, a dataclass by its fields."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    if isinstance(value, Usd | UsdPerHour | Decimal):
        return str(value)
    if is_dataclass(value):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    return value


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[R]):
    """One value of each row: its field in CSV and JSON, and how a table for people shows it.

    ``name`` is the field; "" leaves it out of CSV and JSON. ``heading`` stands above it in text; None leaves it out of
    text. ``value`` takes it from a row, ``show`` makes its text, ``unknown`` is the text of None. ``wide`` is True for
    a column of the wide table alone, False for one of the narrow table alone. In the narrow table ``width`` is the
    greatest width of a cell, and a column with ``least`` gives way down to that where the screen is too narrow.
    ``plain`` makes the value of JSON and CSV, and ``csv`` that of CSV where it is another.
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
    plain: Callable[[Any], object] = plain_value
    csv: Callable[[Any], object] | None = None

    def data(self, row: R) -> object:
        value = self.value(row)
        return None if value is None else self.plain(value)

    def cell(self, row: R) -> str:
        value = self.value(row)
        return self.unknown if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class RecordTable(Generic[R]):
    """A table of rows of one kind, in the order of its columns. ``clip`` shortens cells of columns with ``least``."""

    columns: tuple[TableColumn[R], ...]
    clip: Callable[[str, int], str] = clip_text

    @property
    def fields(self) -> tuple[str, ...]:
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

    def record(self, row: R) -> dict[str, object]:
        """Return the fields of a row as JSON has them: money and decimals as exact text, moments in ISO 8601."""
        return {column.name: column.data(row) for column in self.columns if column.name}

    def records(self, rows: Iterable[R]) -> list[dict[str, object]]:
        return [self.record(row) for row in rows]

    def csv(self, rows: Iterable[R], *, unknown: str = "") -> str:
        """Return CSV with the fields of the records; None is the word ``unknown``, lists are joined by commas."""
        columns = [column for column in self.columns if column.name]
        lines = ([_csv_value(column, row) for column in columns] for row in rows)
        return csv_text(self.fields, lines, unknown=unknown)


def attribute_columns(*names: str, of: str = "") -> tuple[TableColumn[Any], ...]:
    """Return columns of CSV and JSON for named attributes of a row, or of its attribute ``of``, which may be None."""
    return tuple(TableColumn(name, partial(_take_attribute, of, name)) for name in names)


def _take_attribute(of: str, name: str, row: object) -> object:
    owner = attrgetter(of)(row) if of else row
    return None if owner is None else getattr(owner, name)


def field_columns(
    kind: type, take: Callable[[R], object], **instead: Callable[[R], object]
) -> tuple[TableColumn[R], ...]:
    """Return a column of CSV and JSON for each field of a dataclass.

    ``take`` gets the dataclass from a row; the values of fields named in ``instead`` are computed so.
    """
    return tuple(
        TableColumn(field.name, instead.get(field.name) or partial(_take_field, take, field.name))
        for field in fields(kind)
    )


def _take_field(take: Callable[[R], object], name: str, row: R) -> object:
    return getattr(take(row), name)


def _csv_value(column: TableColumn[R], row: R) -> object:
    value = column.data(row)
    if column.csv is not None:
        return None if value is None else column.csv(value)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else value
