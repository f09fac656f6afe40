"""What a bill's file holds, as batches of text by column, and the most of it that is read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import pyarrow as pa

from pricing.problems import InvalidInputError


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is read of one file. ``ratio``: unpacked bytes for each packed one, once ``ratio_from`` are
    unpacked."""

    rows: int = 200_000_000
    bytes: int = 1 << 38
    columns: int = 1_000
    line: int = 1 << 22
    ratio: int = 500
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


def checked_header(names: Sequence[str], path: PurePath, limits: Limits) -> tuple[str, ...]:
    """The names, if they can be a header. InvalidInputError otherwise."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) <= limits.columns else []
    if len(names) > limits.columns:
        raise InvalidInputError.single(f"has {len(names)} columns, {limits.columns} at most", where=f"{path}:1")
    if twice or "" in names:
        what = f"names the column {twice[0]!r} twice" if twice and twice[0] else "has a column without a name"
        raise InvalidInputError.single(what, where=f"{path}:1", remedy="a bill has one header, each column once")
    return tuple(names)
