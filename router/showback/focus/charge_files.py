"""Write files of charges for machines, whole or not at all.

Written are FOCUS 1.4 and 1.2, as CSV or Parquet. Bills of others are read by ``survey``, which accepts more.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pricing.atomic_file import open_atomic
from router.showback.focus.columns import BY_NAME, NEWEST, RENAMED_COLUMNS, Charge, FocusColumnKind, written_columns
from router.showback.focus.texts import decimal_text, json_text, moment_text
from router.showback.focus.typed_rows import arrow_schema

_ROWS_AT_ONCE = 16_384


def write_csv(path: Path, charges: Iterable[Charge], version: str = NEWEST) -> int:
    """Write the charges in their order, and return how many there are.

    The same charges give the same bytes: UTF-8, a comma, lines end in LF. OSError where the file cannot be written,
    ValueError for a charge that it cannot hold; no file is left then.
    """
    count = 0
    with open_atomic(path) as stream:
        text = _Encoded(stream)
        writer = csv.writer(text, lineterminator="\n")
        # The csv module leaves a lone carriage return bare, and readers take it for the end of the row.
        quoting_writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(column.name for column in written_columns(version))
        for charge in charges:
            row = _cell_texts(charge, version)
            (quoting_writer if any("\r" in cell for cell in row) else writer).writerow(row)
            count += 1
    return count


def write_parquet(path: Path, charges: Iterable[Charge], version: str = NEWEST) -> int:
    """Write the charges in their order, and return how many there are.

    Amounts are decimal128, moments UTC to the microsecond, JSON is text. OSError where the file cannot be written,
    ValueError for an amount with more digits than fit; no file is left then.
    """
    schema, count = arrow_schema(written_columns(version)), 0
    with open_atomic(path) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for chunk in _chunks(charges):
            rows = [_cell_values(charge, version) for charge in chunk]
            arrays = [_array(list(column), kind) for column, kind in zip(zip(*rows, strict=True), schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            count += len(rows)
    return count


WRITERS: dict[str, Callable[[Path, Iterable[Charge], str], int]] = {"csv": write_csv, "parquet": write_parquet}


def _chunks(charges: Iterable[Charge]) -> Iterator[list[Charge]]:
    remaining = iter(charges)
    while chunk := list(islice(remaining, _ROWS_AT_ONCE)):
        yield chunk


def _array(column: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(column, field.type)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{field.name}: {error}") from None


class _Encoded:
    """The one method that the csv module needs of a text file; the caller closes the stream of bytes below."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.encode("utf-8"))


def _cell_values(charge: Charge, version: str) -> tuple[Any, ...]:
    """Return the cells for a typed file: text, Decimal and datetime, JSON objects as text; None is null."""
    fields, kinds = _row_getter(version)
    return tuple(
        json_text(value) if kind is FocusColumnKind.JSON and value is not None else value
        for value, kind in zip(fields(charge), kinds, strict=True)
    )


def _cell_texts(charge: Charge, version: str) -> tuple[str, ...]:
    fields, kinds = _row_getter(version)
    return tuple("" if value is None else _text(value, kind) for value, kind in zip(fields(charge), kinds, strict=True))


@cache
def _row_getter(version: str) -> tuple[Callable[[Charge], tuple[Any, ...]], tuple[FocusColumnKind, ...]]:
    columns = written_columns(version)
    fields = attrgetter(*(BY_NAME[RENAMED_COLUMNS.get(column.name, column.name)].field for column in columns))
    return fields, tuple(column.kind for column in columns)


def _text(value: Any, kind: FocusColumnKind) -> str:
    if kind is FocusColumnKind.DECIMAL:
        return decimal_text(value)
    if kind is FocusColumnKind.JSON:
        return json_text(value)
    return moment_text(value) if kind is FocusColumnKind.MOMENT else str(value)
