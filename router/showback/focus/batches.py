"""Define batches of a bill's file, as text by column, and the limits on what is read of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import pyarrow as pa

from pricing.problems import InvalidInputError


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
        """The number of rows."""
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
