"""Convert a charge into the cells of a row of any written version, and a row into a charge. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from router.showback.focus.charge import Charge
from router.showback.focus.columns import BY_NAME, FocusColumnKind
from router.showback.focus.texts import decimal_text, json_text, moment_text, read_decimal, read_json, read_moment
from router.showback.focus.versions import NEWEST, RENAMED_COLUMNS, match_columns, written_columns


def header_names(version: str) -> tuple[str, ...]:
    """Return the names of the columns that a file of that version has."""
    return tuple(column.name for column in written_columns(version))


def cell_values(charge: Charge, version: str) -> tuple[Any, ...]:
    """Return the cells for a typed file: text, Decimal and datetime, JSON objects as text; None is null."""
    fields, kinds = _row_getter(version)
    return tuple(
        json_text(value) if kind is FocusColumnKind.JSON and value is not None else value
        for value, kind in zip(fields(charge), kinds, strict=True)
    )


def cell_texts(charge: Charge, version: str) -> tuple[str, ...]:
    """Return the cells for a text file; null is an empty cell."""
    fields, kinds = _row_getter(version)
    return tuple("" if value is None else _text(value, kind) for value, kind in zip(fields(charge), kinds, strict=True))


def charge_of_row(row: Mapping[str, str | None]) -> Charge:
    """Return the charge of a row of text by column name, of any version.

    ValueError: a value FOCUS does not allow there, or none where there must be one; nothing is filled in.
    """
    fields: dict[str, Any] = {}
    for target, source in match_columns(row.keys()).items():
        text = row[source]
        column = BY_NAME[target]
        if text:
            try:
                fields[column.field] = _read(text, column.kind)
            except ValueError as error:
                raise ValueError(f"{source} {error}") from None
    missing = [c.name for c in written_columns(NEWEST) if not c.nullable and c.field not in fields]
    if missing:
        raise ValueError(f"{', '.join(missing)} must not be empty")
    return Charge(**fields)


@cache
def _row_getter(version: str) -> tuple[Callable[[Charge], tuple[Any, ...]], tuple[FocusColumnKind, ...]]:
    """Return the getter of a row's values from a charge, and the kinds of the values."""
    columns = written_columns(version)
    fields = attrgetter(*(BY_NAME[RENAMED_COLUMNS.get(column.name, column.name)].field for column in columns))
    return fields, tuple(column.kind for column in columns)


def _text(value: Any, kind: FocusColumnKind) -> str:
    if kind is FocusColumnKind.DECIMAL:
        return decimal_text(value)
    if kind is FocusColumnKind.JSON:
        return json_text(value)
    return moment_text(value) if kind is FocusColumnKind.MOMENT else str(value)


def _read(text: str, kind: FocusColumnKind) -> Any:
    if kind is FocusColumnKind.DECIMAL:
        return read_decimal(text)
    if kind is FocusColumnKind.MOMENT:
        return read_moment(text)
    return read_json(text) if kind is FocusColumnKind.JSON else text
