"""Read Parquet as batches of text, whatever the types of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricing.problems import InvalidInputError
from router.showback.focus.batches import Batch, Feed, FeedLimits, check_header
from router.showback.focus.texts import json_text

# Limits of the footer, which is read before anything is known of the file.
_FOOTER_TEXT = 1 << 26
_FOOTER_LIST = 1 << 22


def parquet_feed(path: Path, stream: IO[bytes], limits: FeedLimits) -> Feed:
    """Return the feed of a stream at its start; errors as :func:`~router.showback.focus.feed.open_feed` says."""
    options: dict[str, Any] = {
        "thrift_string_size_limit": _FOOTER_TEXT,
        "thrift_container_size_limit": _FOOTER_LIST,
        "buffer_size": limits.batch_bytes,
    }
    try:
        plain = pq.ParquetFile(stream, **options)
        schema, footer = plain.schema_arrow, plain.metadata
        header = check_header(schema.names, path, limits)
        unpacked = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        if footer.num_rows > limits.rows or unpacked > limits.bytes:
            raise _refused(path, f"says it has {footer.num_rows:,} rows and {unpacked:,} bytes: more than is read")
        # A value that stands there a million times is stored once, until it is known how much it unpacks to.
        texts = [
            entry.name for entry in schema if pa.types.is_string(entry.type) or pa.types.is_large_string(entry.type)
        ]
        file = pq.ParquetFile(stream, read_dictionary=texts, **options)
    except (pa.ArrowException, OSError) as error:
        raise _refused(path, f"is no Parquet that can be read: {error}") from None
    floats = frozenset(entry.name for entry in schema if pa.types.is_floating(entry.type))
    return Feed(path.name, "parquet", header, _batches(path, file, limits), floats)


def _batches(path: Path, file: pq.ParquetFile, limits: FeedLimits) -> Iterator[Batch]:
    first = 1
    try:
        for record in file.iter_batches(batch_size=limits.batch_rows):
            room = limits.batch_bytes * 8
            for part in _split_batch(path, record, room):
                columns = {name: _text(column) for name, column in zip(record.schema.names, part.columns, strict=True)}
                yield Batch(first, None, columns)
                first += part.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refused(path, f"is damaged after row {first - 1}: {str(error)[:200]}") from None


def _split_batch(path: Path, record: pa.RecordBatch, room: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch, or its halves, so that none unpacks to more than ``room`` bytes of text."""
    size = 0
    for column in record.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
            size += pc.sum(lengths).as_py() or 0
    if size <= room:
        yield record
    elif record.num_rows == 1:
        raise _refused(path, "has a row of more text than is read at once")
    else:
        half = record.num_rows // 2
        yield from _split_batch(path, record.slice(0, half), room)
        yield from _split_batch(path, record.slice(half), room)


def _text(column: pa.Array) -> pa.StringArray:
    """Return each value as FOCUS would write it; an empty text is null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    elif pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        utc = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, tz="UTC"))
        text = pc.strftime(utc, format="%Y-%m-%dT%H:%M:%S")
        if kind.unit != "s":  # Then the seconds come with all their decimals.
            text = pc.replace_substring_regex(text, r"\.?0*$", "")
        column = pc.binary_join_element_wise(text, zone, "")
    elif pa.types.is_date(kind):
        column = pc.strftime(column, format="%Y-%m-%dT00:00:00")
    elif pa.types.is_floating(kind):
        column = pc.replace_substring(pc.utf8_upper(column.cast(pa.string())), "+", "")
    elif pa.types.is_nested(kind):
        values = column.to_pylist(maps_as_pydicts="lossy")  # Of a key that is there twice, the last value counts.
        column = pa.array([None if each is None else json_text(_json_value(each)) for each in values], pa.string())
    text = column.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), None, text)


def _json_value(value: Any) -> Any:
    """Return the value as JSON takes it; a struct's null is a missing key."""
    if isinstance(value, dict):
        return {str(key): _json_value(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_json_value(entry) for entry in value]
    return Decimal(repr(value)) if isinstance(value, float) else value


def _refused(path: Path, what: str) -> InvalidInputError:
    return InvalidInputError.single(what, where=str(path), remedy="fetch it again, or give it as CSV")
