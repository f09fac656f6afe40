"""Open a bill's file as batches of text, whatever its form. Nothing in it is trusted.

Bills come as CSV, CSV in gzip, and Parquet. All become text here, so that one set of rules reads them. A file that
could fill the memory or never end is refused with its place.
"""

from __future__ import annotations

import csv
import gzip
import io
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path, PurePath
from typing import IO, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricing.problems import InvalidInputError
from router.files.missing_file import missing_file
from router.showback.focus.columns import find_column, match_names
from router.showback.focus.texts import json_text


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """The most that is read of one file.

    ``ratio`` is unpacked bytes for each packed one, checked once ``ratio_from`` bytes are unpacked.
    """

    rows: int = 200_000_000
    bytes: int = 1 << 38
    columns: int = 1_000
    line: int = 1 << 22
    ratio: int = 500
    ratio_from: int = 1 << 26
    batch_rows: int = 16_384
    batch_bytes: int = 1 << 25


LIMITS = FeedLimits()


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows of a file.

    ``first`` is the number of the first row in the file, from 1. ``lines`` are the lines where each ends in a text
    file; None in Parquet. ``columns`` is text by name as delivered; an empty cell is null.
    """

    first: int
    lines: Sequence[int] | None
    columns: Mapping[str, pa.StringArray]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(frozen=True, slots=True)
class Feed:
    """An opened file: its columns in its order, its form, and its rows, which can be read once.

    ``written`` are the names in the file of columns that it writes in another way than FOCUS does.
    """

    name: str
    form: str
    header: tuple[str, ...]
    batches: Iterator[Batch]
    # Columns that hold binary fractions: their amounts are those of the file, but not those of the invoice.
    floats: frozenset[str] = field(default_factory=frozenset)
    written: Mapping[str, str] = field(default_factory=dict)


def check_header(names: Sequence[str], path: PurePath, limits: FeedLimits) -> tuple[str, ...]:
    """Return the names, if they can be a header; InvalidInputError otherwise."""
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(names) <= limits.columns else []
    if len(names) > limits.columns:
        raise InvalidInputError.single(f"has {len(names)} columns, {limits.columns} at most", where=f"{path}:1")
    if repeated or "" in names:
        what = f"names the column {repeated[0]!r} twice" if repeated and repeated[0] else "has a column without a name"
        raise InvalidInputError.single(what, where=f"{path}:1", remedy="a bill has one header, each column once")
    return tuple(names)


@contextmanager
def csv_feed(path: Path, stream: IO[bytes], limits: FeedLimits, *, packed: bool) -> Iterator[Feed]:
    """Yield the feed of a stream at its start; errors as :func:`~router.showback.focus.feed.open_feed` says."""
    unpacked: Any = gzip.GzipFile(fileobj=stream) if packed else stream
    with io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline="") as text:
        lines = _Lines(path, text, stream, limits, packed=packed)
        rows = _rows(lines)
        first = next(rows, None)
        if first is None:
            raise InvalidInputError.single("is empty", where=str(path))
        header = check_header(first, path, limits)
        yield Feed(path.name, "csv.gz" if packed else "csv", header, _csv_batches(header, rows, lines, limits))


class _Lines:
    """Iterate the lines of a text, refusing a line, or a whole, that is beyond the limits."""

    def __init__(self, path: Path, text: io.TextIOWrapper, raw: IO[bytes], limits: FeedLimits, *, packed: bool) -> None:
        self.path, self.number, self.read = path, 0, 0
        self._text, self._raw, self._limits, self._packed = text, raw, limits, packed

    def __iter__(self) -> Iterator[str]:
        limits = self._limits
        while line := self._next():
            self.number += 1
            self.read += len(line)
            if len(line) == limits.line and not line.endswith(("\n", "\r")):
                raise self.refused(f"is a line of more than {limits.line:,} characters")
            if self.read > limits.bytes:
                raise self.refused(f"goes beyond {limits.bytes:,} bytes, the most that is read of a file")
            if self._packed and self.read > max(limits.ratio_from, limits.ratio * self._raw.tell()):
                raise self.refused(f"unpacks to more than {limits.ratio} times its size: no bill does")
            yield line

    def _next(self) -> str:
        try:
            return self._text.readline(self._limits.line)
        except UnicodeDecodeError as error:
            remedy = "save it as UTF-8; iconv -f latin1 -t utf-8 does for most"
            raise self.refused(f"is not UTF-8 after here: {error.reason}", remedy=remedy) from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.refused(f"is damaged gzip, or cut off, after here: {error}", remedy="fetch it again") from None

    def refused(self, what: str, *, remedy: str = "") -> InvalidInputError:
        """Return an error about the line that was read last."""
        return InvalidInputError.single(what, where=f"{self.path}:{max(self.number, 1)}", remedy=remedy)


def _rows(lines: _Lines) -> Iterator[list[str]]:
    reader = csv.reader(iter(lines), strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise lines.refused(f"is not CSV: {error}", remedy="a quote may stand open in a row before") from None
        if row:
            yield row


def _csv_batches(
    header: tuple[str, ...], rows: Iterator[list[str]], lines: _Lines, limits: FeedLimits
) -> Iterator[Batch]:
    first, waiting, ends, start = 1, [], [], lines.read
    for row in rows:
        if len(row) != len(header):
            raise lines.refused(f"has {len(row)} cells where the header has {len(header)}")
        waiting.append(row)
        ends.append(lines.number)
        if len(waiting) == limits.batch_rows or lines.read - start > limits.batch_bytes:
            yield _csv_batch(first, ends, header, waiting)
            first, waiting, ends, start = first + len(waiting), [], [], lines.read
            if first > limits.rows:
                raise lines.refused(f"has more than {limits.rows:,} rows, the most that is read of a file")
    if waiting:
        yield _csv_batch(first, ends, header, waiting)


def _csv_batch(first: int, ends: list[int], header: tuple[str, ...], rows: list[list[str]]) -> Batch:
    columns = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        array = pa.array(cells, pa.string())
        columns[name] = pc.if_else(pc.equal(array, ""), None, array)
    return Batch(first, ends, columns)


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
    return Feed(path.name, "parquet", header, _parquet_batches(path, file, limits), floats)


def _parquet_batches(path: Path, file: pq.ParquetFile, limits: FeedLimits) -> Iterator[Batch]:
    first = 1
    try:
        for record in file.iter_batches(batch_size=limits.batch_rows):
            room = limits.batch_bytes * 8
            for part in _split_batch(path, record, room):
                columns = {name: _texts(column) for name, column in zip(record.schema.names, part.columns, strict=True)}
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


def _texts(column: pa.Array) -> pa.StringArray:
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


_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_feed(path: Path, limits: FeedLimits = LIMITS) -> Iterator[Feed]:
    """Open a file as a feed; ``bill.zip/part.csv`` is a file within an archive.

    Names of columns are those of FOCUS, whatever their capitals and blanks in the file. A folder ``Name=value`` on the
    way to the file fills the column of that name where the file has none.
    InvalidInputError, also while the batches are read: no such file, no regular file, a form that is not read, damaged,
    cut off, not UTF-8, rows with more or fewer cells than the header, names given twice, more than ``limits``.
    """
    with open_bill(path, limits) as stream:
        start = stream.read(4)
        stream.seek(0)
        if start == _PARQUET:
            yield _with_partitions(_with_names(parquet_feed(path, stream, limits), path), path)
        elif start.startswith(_UTF16) or start == _ZIP:
            what = "is a zip archive" if start == _ZIP else "is UTF-16"
            raise InvalidInputError.single(
                what, where=str(path), remedy="give CSV in UTF-8, plain or in gzip, or Parquet"
            )
        else:
            with csv_feed(path, stream, limits, packed=start.startswith(_GZIP)) as feed:
                yield _with_partitions(_with_names(feed, path), path)


def _with_names(feed: Feed, path: Path) -> Feed:
    matched = match_names(feed.header)
    if not matched:
        return feed
    several = next(((column, names) for column, names in matched.items() if len(names) > 1), None)
    if several is not None:
        what = f"names the column {several[0]} twice, as {' and '.join(map(repr, several[1]))}"
        raise InvalidInputError.single(what, where=f"{path}:1", remedy="a bill has one header, each column once")
    written = {column: names[0] for column, names in matched.items()}
    column_of = {name: column for column, name in written.items()}
    batches = (
        replace(batch, columns={column_of.get(name, name): cells for name, cells in batch.columns.items()})
        for batch in feed.batches
    )
    header = tuple(column_of.get(name, name) for name in feed.header)
    floats = frozenset(column_of.get(name, name) for name in feed.floats)
    return replace(feed, header=header, batches=batches, floats=floats, written=written)


# The word of Hive for a partition without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def _with_partitions(feed: Feed, path: Path) -> Feed:
    pairs = (part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    named = ((find_column(name), value) for name, value in pairs)
    values = {name: unquote(value) for name, value in named if name is not None and name not in feed.header}
    if not values:
        return feed
    batches = (
        replace(batch, columns={**batch.columns, **_constant_columns(values, batch.rows)}) for batch in feed.batches
    )
    return replace(feed, header=(*feed.header, *values), batches=batches)


def _constant_columns(values: Mapping[str, str], rows: int) -> dict[str, pa.StringArray]:
    return {
        name: pa.repeat(pa.scalar(None if value in ("", _NO_VALUE) else value, pa.string()), rows)
        for name, value in values.items()
    }


@contextmanager
def open_bill(path: Path, limits: FeedLimits = LIMITS) -> Iterator[IO[bytes]]:
    """Open a file, or a file within a zip archive, for its bytes. InvalidInputError where there is none to read."""
    archive = next((parent for parent in path.parents if parent.is_file()), None)
    with ExitStack() as stack:
        try:
            if archive is not None:
                packed = stack.enter_context(zipfile.ZipFile(archive))
                entry = packed.getinfo(path.relative_to(archive).as_posix())
                _refuse_archived(path, entry, limits)
                stream = stack.enter_context(packed.open(entry))
            # A pipe or a device would block, or never end.
            elif stat.S_ISREG(path.stat().st_mode):
                stream = stack.enter_context(path.open("rb"))
            else:
                raise InvalidInputError.single("is no regular file", where=str(path))
        except (zipfile.BadZipFile, NotImplementedError, KeyError) as error:
            raise _unpacking_error(path, error) from None
        except FileNotFoundError:
            raise missing_file(path) from None
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise InvalidInputError.single(f"cannot be read: {what}", where=str(path)) from None
        try:
            yield stream
        except zipfile.BadZipFile as error:  # Its checksum is compared at the end.
            raise _unpacking_error(path, error) from None


def _unpacking_error(path: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError.single(f"cannot be unpacked: {error}", where=str(path), remedy="fetch it again")


def _refuse_archived(path: Path, entry: zipfile.ZipInfo, limits: FeedLimits) -> None:
    if entry.flag_bits & 1:
        raise InvalidInputError.single("is encrypted", where=str(path), remedy="unpack it first")
    if entry.file_size > max(limits.ratio_from, limits.ratio * entry.compress_size) or entry.file_size > limits.bytes:
        raise InvalidInputError.single(f"unpacks to {entry.file_size:,} bytes: no bill does", where=str(path))
