"""Open a bill's file, whatever its form. Nothing in it is trusted.

Bills come as CSV, CSV in gzip, and Parquet. All become text here, so that one set of rules reads them. A file that
could fill the memory or never end is refused with its place.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pricing.problems import InvalidInputError
from router.showback.focus.batches import LIMITS, Feed, FeedLimits
from router.showback.focus.csv_feed import csv_feed
from router.showback.focus.parquet_feed import parquet_feed

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_feed(path: Path, limits: FeedLimits = LIMITS) -> Iterator[Feed]:
    """Open a file as a feed.

    InvalidInputError, also while the batches are read: no such file, no regular file, a form that is not read, damaged,
    cut off, not UTF-8, rows with more or fewer cells than the header, names given twice, more than ``limits``.
    """
    with _open_stream(path) as stream:
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
def _open_stream(path: Path) -> Iterator[IO[bytes]]:
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
