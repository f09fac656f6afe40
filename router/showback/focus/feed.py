"""What a bill's file holds, as batches of text by column, whatever the file is. Nothing in it is trusted.

Bills come as CSV, CSV in gzip, and Parquet. All become text here, so that one set of rules reads them; what could
fill the memory or never end is refused with its place.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa

from pricing.problems import InvalidInputError

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is read of one file. ``ratio``: unpacked bytes for each packed one, once ``ratio_from`` are
    unpacked."""

    rows: int = 200_000_000
    bytes: int = 1 << 38
    columns: int = 1_000
    line: int = 1 << 22
    ratio: int = 200
    ratio_from: int = 1 << 26
    batch_rows: int = 16_384
    batch_bytes: int = 1 << 25


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows one after the other. ``first``: the number of the first in the file, from 1. ``lines``: where each ends in a
    text file; None in Parquet. ``columns``: text by name as delivered; an empty cell is null."""

    first: int
    lines: Sequence[int] | None
    columns: Mapping[str, pa.StringArray]

    @property
    def rows(self) -> int:
        """How many."""
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(frozen=True, slots=True)
class Feed:
    """A file that was opened: its columns in its order, what kind it is, and its rows, to be gone through once."""

    name: str
    form: str
    header: tuple[str, ...]
    batches: Iterator[Batch]
    # Columns that hold binary fractions: their amounts are those of the file, but not those of the invoice.
    floats: frozenset[str] = field(default_factory=frozenset)


@contextmanager
def open_feed(path: Path, limits: Limits = LIMITS) -> Iterator[Feed]:
    """InvalidInputError, also while the batches are gone through: no such file, no regular file, of no kind that is
    read, damaged, cut off, not UTF-8, rows with more or fewer cells than the header, names given twice, more than
    ``limits``."""
    from router.showback.focus.csvfeed import csv_feed
    from router.showback.focus.parquetfeed import parquet_feed

    with _opened(path) as stream:
        start = stream.read(4)
        stream.seek(0)
        if start == _PARQUET:
            yield parquet_feed(path, stream, limits)
        elif start.startswith(_UTF16) or start == _ZIP:
            what = "is a zip archive" if start == _ZIP else "is UTF-16"
            raise InvalidInputError.single(
                what, where=str(path), remedy="give CSV in UTF-8, plain or in gzip, or Parquet"
            )
        else:
            with csv_feed(path, stream, limits, packed=start.startswith(_GZIP)) as feed:
                yield feed


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        # A pipe or a device would block, or never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidInputError.single("is no regular file", where=str(path))
        stream = path.open("rb")
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError.single(f"cannot be read: {what}", where=str(path)) from None
    with stream:
        yield stream


def checked_header(names: Sequence[str], path: Path, limits: Limits) -> tuple[str, ...]:
    """The names, if they can be a header. InvalidInputError otherwise."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) <= limits.columns else []
    if len(names) > limits.columns:
        raise InvalidInputError.single(f"has {len(names)} columns, {limits.columns} at most", where=f"{path}:1")
    if twice or "" in names:
        what = f"names the column {twice[0]!r} twice" if twice and twice[0] else "has a column without a name"
        raise InvalidInputError.single(what, where=f"{path}:1", remedy="a bill has one header, each column once")
    return tuple(names)
