"""The ledger as facts in Parquet, which grows with it. It can be deleted at any time, and is made again.

Only rows with a number above the last are read. Whether it is still the same ledger is known from the hash of the last
row that was read: if the ledger has another one there, all is made anew. What is archived later stays; what had been
archived before it was read is missing, and said to be (:attr:`~router.showback.extract_parts.Manifest.gaps`), until the
archive's file is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from router.showback.collector import without_collector
from router.showback.extract_parts import (
    Manifest,
    Part,
    locked,
    merge_parts,
    read_manifest,
    sweep,
    write_manifest,
    write_part,
)
from router.showback.facts_from_ledger import facts_of
from router.state.ledger_columns import Columns, columns_of
from router.state.ledger_rows import BEGINNING, Row

_BATCH = 25_000
# Rows of a part at most as they are read; and how many are read before what is there counts.
_PART_ROWS, _COMMIT_ROWS = 250_000, 1_000_000
# So many parts of about one size in a month become one.
_FAN = 8
_SMALLEST = 8_192

Tell = Callable[[int], None]


class Books(Protocol):
    """What is read of a ledger (:class:`router.state.ledger_store.LedgerStore`)."""

    def head(self) -> int:
        """The number of the last entry."""

    def hash_at(self, seq: int) -> str | None:
        """The hash of an entry."""

    def columns(self, after: int = 0, *, size: int = ...) -> Iterator[Columns]:
        """Rows above a number, in order."""


@dataclass(slots=True)
class _Reading:
    """Rows on their way into parts, by month."""

    folder: Path
    manifest: Manifest
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    rows: int = 0
    since: int = 0
    parts: list[Part] = field(default_factory=list)


class Extract:
    """The extract under ``folder`` of the ledger of one state."""

    def __init__(self, folder: Path, state: str) -> None:
        self.folder = folder / state
        self._state = state

    @contextmanager
    def current(self, books: Books, tell: Tell | None = None) -> Iterator[Manifest]:
        """Brought up to the ledger's head; its files stay while the block runs. ``tell`` hears the numbers read so
        far. InvalidInputError where somebody else keeps the folder; OSError where it cannot be written."""
        with locked(self.folder):
            with without_collector():
                manifest = self._refreshed(books, tell or (lambda _: None))
            yield manifest

    def add_archived(self, books: Books, rows: Iterable[Row], tell: Tell | None = None) -> Manifest:
        """Fills gaps with the rows of an archive, whose file the caller has checked; what is here already is left
        out."""
        with locked(self.folder):
            manifest = self._refreshed(books, tell or (lambda _: None))
            reading, some = _Reading(self.folder, manifest), list[Row]()
            for row in rows:
                if any(first <= row[0] <= last for first, last in manifest.gaps):
                    some.append(row)
                    if len(some) >= _BATCH:
                        _take(reading, columns_of(some))
                        some = []
            if some:
                _take(reading, columns_of(some))
            _flush(reading, 0)
            filled = {number for part in reading.parts for number in _numbers(self.folder, part)}
            gaps = tuple(_without(manifest.gaps, filled))
            return self._commit(replace(manifest, parts=(*manifest.parts, *reading.parts), gaps=gaps))

    def _refreshed(self, books: Books, tell: Tell) -> Manifest:
        manifest = read_manifest(self.folder)
        if manifest is None or not self._is_of(manifest, books):
            manifest = Manifest(self._state)
        sweep(self.folder, manifest)
        head = books.head()
        if head == manifest.head:
            return manifest
        reading, seq = _Reading(self.folder, manifest), manifest.head
        gaps = list(manifest.gaps)
        for columns in books.columns(manifest.head, size=_BATCH):
            gaps += _missing(seq, columns.seqs)
            seq = columns.seqs[-1]
            _take(reading, columns)
            tell(seq)
            if reading.since >= _COMMIT_ROWS:
                _flush(reading, 0)
                parts = (*reading.manifest.parts, *reading.parts)
                reading.manifest = self._commit(self._upto(seq, books, parts, gaps))
                reading.parts, reading.since = [], 0
        _flush(reading, 0)
        head = max(head, seq)
        if head > seq:
            gaps.append((seq + 1, head))
        parts = (*reading.manifest.parts, *reading.parts)
        return self._commit(self._upto(head, books, parts, gaps))

    def _upto(self, head: int, books: Books, parts: tuple[Part, ...], gaps: Sequence[tuple[int, int]]) -> Manifest:
        return Manifest(self._state, head, books.hash_at(head) or BEGINNING, parts, tuple(gaps))

    def _is_of(self, manifest: Manifest, books: Books) -> bool:
        same = BEGINNING if manifest.head == 0 else books.hash_at(manifest.head)
        return manifest.state == self._state and manifest.hash == same

    def _commit(self, manifest: Manifest) -> Manifest:
        merged = _merged(self.folder, manifest)
        write_manifest(self.folder, merged)
        return merged


def _take(reading: _Reading, rows: Columns) -> None:
    table = facts_of(rows)
    months = pc.unique(table["month"]).to_pylist()
    for month in months:
        of_it = table if len(months) == 1 else table.filter(pc.equal(table["month"], month))
        reading.tables.setdefault(month, []).append(of_it)
    reading.rows += table.num_rows
    reading.since += table.num_rows
    if reading.rows >= _PART_ROWS:
        _flush(reading, _PART_ROWS // 2)


def _flush(reading: _Reading, least: int) -> None:
    """Months with more rows waiting than ``least`` become parts; all where none has."""
    sizes = {month: sum(table.num_rows for table in tables) for month, tables in reading.tables.items()}
    large = [month for month, size in sizes.items() if size > least] or list(sizes)
    for month in sorted(large):
        table = pa.concat_tables(reading.tables.pop(month))
        reading.rows -= table.num_rows
        reading.parts.append(write_part(reading.folder, table, month))


def _missing(seq: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    if numbers[-1] - seq == len(numbers):
        return
    for number in numbers:
        if number > seq + 1:
            yield seq + 1, number - 1
        seq = number


def _numbers(folder: Path, part: Part) -> list[int]:
    import pyarrow.parquet as pq

    found: list[int] = pq.read_table(part.path(folder, "facts"), columns=["row"])["row"].to_pylist()
    return found


def _without(gaps: Iterable[tuple[int, int]], filled: set[int]) -> Iterator[tuple[int, int]]:
    for first, last in gaps:
        left = [number for number in range(first, last + 1) if number not in filled]
        begin = 0
        for place, number in enumerate(left):
            if place + 1 == len(left) or left[place + 1] != number + 1:
                yield left[begin], number
                begin = place + 1


def _merged(folder: Path, manifest: Manifest) -> Manifest:
    """Where a month has many parts of about one size, they become one: each row is rewritten a few times at most."""
    parts = list(manifest.parts)
    for month in {part.month for part in parts}:
        while (some := _many(part for part in parts if part.month == month)) is not None:
            parts = [part for part in parts if part not in some]
            parts.append(merge_parts(folder, some))
    ordered = sorted(parts, key=lambda part: (part.month, part.first))
    return replace(manifest, parts=tuple(ordered))


def _many(parts: Iterable[Part]) -> tuple[Part, ...] | None:
    levels: dict[int, list[Part]] = {}
    for part in parts:
        level, size = 0, _SMALLEST
        while part.rows >= size:
            level, size = level + 1, size * _FAN
        levels.setdefault(level, []).append(part)
    return next((tuple(some) for _, some in sorted(levels.items()) if len(some) >= _FAN), None)
