"""Read CSV, plain or in gzip, as batches of text with the line of each row."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from pricing.problems import InvalidInputError
from router.showback.focus.batches import Batch, Feed, FeedLimits, check_header


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
        yield Feed(path.name, "csv.gz" if packed else "csv", header, _batches(header, rows, lines, limits))


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


def _batches(header: tuple[str, ...], rows: Iterator[list[str]], lines: _Lines, limits: FeedLimits) -> Iterator[Batch]:
    first, waiting, ends, start = 1, [], [], lines.read
    for row in rows:
        if len(row) != len(header):
            raise lines.refused(f"has {len(row)} cells where the header has {len(header)}")
        waiting.append(row)
        ends.append(lines.number)
        if len(waiting) == limits.batch_rows or lines.read - start > limits.batch_bytes:
            yield _batch(first, ends, header, waiting)
            first, waiting, ends, start = first + len(waiting), [], [], lines.read
            if first > limits.rows:
                raise lines.refused(f"has more than {limits.rows:,} rows, the most that is read of a file")
    if waiting:
        yield _batch(first, ends, header, waiting)


def _batch(first: int, ends: list[int], header: tuple[str, ...], rows: list[list[str]]) -> Batch:
    columns = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        array = pa.array(cells, pa.string())
        columns[name] = pc.if_else(pc.equal(array, ""), None, array)
    return Batch(first, ends, columns)
