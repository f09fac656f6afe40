"""Writing of the price history: adding points and merging parts, each under the folder's lock."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.history import PricePoint
from router.files import duckdb_session
from router.prices.history_sql import (
    CONTENT,
    IS_CURRENT_ROW,
    KEY,
    SCHEMA_VERSION,
    VALUES,
    VERSION_KEY,
    HistoryPart,
    connect,
    find_bad_parts,
    list_parts,
    lock_for_writing,
    month_of,
    open_parts,
    publish_part,
    remove_parts,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Small enough that a year of one series reads a few per cent of the rows.
ROWS_IN_GROUP = 65_536
MOST_PARTS = 16
_ORDER = 'cloud, region, instance_type, market, zone, "at", source, batch'
_MOST_NANOS = 1 << 63


@dataclass(frozen=True, slots=True)
class Appended:
    """The number of points that were written, and of those that were there already (or twice among those given)."""

    written: int
    already_there: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The number of months that had several parts, and of these parts in all; each month has one now."""

    months: int
    parts: int


def append(folder: Path, points: Iterable[PricePoint]) -> Appended:
    """Add the points to the history in ``folder``, which is made if missing. Two processes may do so at once.

    A point that is stored with the same content is not stored again. One with the same key and other values is, and
    counts from then on; among the points given, a later one counts. Each month is written whole or not at all, oldest
    first: after a failure (OSError: disk full, no permission; TimeoutError: locked for two minutes) the same points can
    be given again. ValueError for a point that means nothing (naive time, no value at all, a price that is not above 0,
    a share outside 0..1), InvalidInputError for a stored part that cannot be read: nothing is written.
    """
    by_month: dict[str, list[PricePoint]] = {}
    for point in points:
        _check(point)
        by_month.setdefault(month_of(point.at), []).append(point)
    if not by_month:
        return Appended(0, 0)
    given = sum(map(len, by_month.values()))
    written = 0
    with lock_for_writing(folder):
        for month in sorted(by_month):
            written += _append_month(folder, month, by_month.pop(month))
    return Appended(written, given - written)


def compact(folder: Path) -> Compacted:
    """Merge every month that has several parts into one part, sorted by series and time, each point once.

    Queries give the same before, during and after, and after a kill at any moment. OSError and TimeoutError as
    :func:`append`; InvalidInputError for a part that cannot be read.
    """
    months = parts_before = 0
    for month in sorted({part.month for part in list_parts(folder)}):
        with lock_for_writing(folder):
            parts = _parts_of(folder, month)
            if len(parts) > 1:
                _merge(folder, month, parts)
                months, parts_before = months + 1, parts_before + len(parts)
    return Compacted(months, parts_before)


def _parts_of(folder: Path, month: str) -> tuple[HistoryPart, ...]:
    return tuple(part for part in list_parts(folder) if part.month == month)


def _check(point: PricePoint) -> None:
    shares = [share for share in (point.available, point.score) if share is not None]
    if point.at.utcoffset() is None:
        raise ValueError(f"a price point needs a time zone: {point}")
    if point.usd_per_hour is None and not shares:
        raise ValueError(f"a price point with neither price nor availability nor score: {point}")
    if point.usd_per_hour is not None and not 0 < point.usd_per_hour.nanos < _MOST_NANOS:
        raise ValueError(f"a price is above 0 and below 9.2 billion dollars: {point}")
    if not all(0 <= share <= 1 for share in shares) or any(math.isnan(share) for share in shares):
        raise ValueError(f"availability and score lie between 0 and 1: {point}")


def _append_month(folder: Path, month: str, points: Sequence[PricePoint]) -> int:
    import duckdb

    parts = _parts_of(folder, month)
    number = 1 + max((part.number for part in parts), default=0)
    with connect() as connection:
        connection.register("given", _as_table(points))
        try:
            if parts:
                open_parts(connection, parts)
            last = _find_new(connection, number, compare=bool(parts))
            rows = int(connection.execute("SELECT count(*) FROM new").fetchall()[0][0])
            if rows:
                write_part(folder, month, last, connection, f"FROM new ORDER BY {_ORDER}")
        except duckdb.Error as error:
            raise find_bad_parts(connection, parts, error) from None
    small = _parts_to_merge(_parts_of(folder, month))
    if small:
        # Merging is only for speed: the points are safe, and the next append tries again.
        with contextlib.suppress(OSError):
            _merge(folder, month, small)
    return rows


def _find_new(connection: duckdb.DuckDBPyConnection, number: int, *, compare: bool) -> int:
    """Make the table ``new`` of the ``given`` points to be written; return its highest number.

    Points are numbered from ``number`` on, those of one key one after the other, so that the last of them counts. If
    that one equals the point that counts already, none of them is needed; the others are only for the record, once.
    """
    content, key = ", ".join(CONTENT), ", ".join(KEY)
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE new AS
        SELECT {content}, {number} - 1 + row_number() OVER (PARTITION BY {key} ORDER BY nth) AS batch,
            row_number() OVER (PARTITION BY {key} ORDER BY nth DESC) = 1 AS is_last
        FROM (SELECT {content}, max(nth) AS nth FROM given GROUP BY {content})""")
    if compare:
        same_point = _equal((*KEY, *VALUES), "new", "old")
        connection.execute(f"""
            CREATE OR REPLACE TEMP TABLE old AS
            SELECT {content}, {IS_CURRENT_ROW} AS counts FROM stored SEMI JOIN new AS k ON {_equal(KEY, "stored", "k")}
            WHERE stored."at" BETWEEN (SELECT min("at") FROM new) AND (SELECT max("at") FROM new)""")
        connection.execute(f"""
            DELETE FROM new USING (SELECT old.* FROM old JOIN new ON counts AND is_last AND {same_point}) AS said
            WHERE {_equal(KEY, "new", "said")}""")
        connection.execute(f"DELETE FROM new USING old WHERE NOT new.is_last AND {same_point}")
    connection.execute("ALTER TABLE new DROP COLUMN is_last")
    return int(connection.execute(f"SELECT coalesce(max(batch), {number}) FROM new").fetchall()[0][0])


def _equal(columns: Sequence[str], left_table: str, right_table: str) -> str:
    return " AND ".join(f"{left_table}.{name} IS NOT DISTINCT FROM {right_table}.{name}" for name in columns)


def _as_table(points: Sequence[PricePoint]) -> pa.Table:
    import pyarrow as pa

    words = ("cloud", "region", "zone", "instance_type", "market", "source")
    kinds = {**dict.fromkeys(words, pa.string()), **dict.fromkeys(("available", "score"), pa.float64())}
    nanos = [None if point.usd_per_hour is None else point.usd_per_hour.nanos for point in points]
    return pa.table(
        {
            **{name: pa.array([getattr(point, name) for point in points], kind) for name, kind in kinds.items()},
            "at": pa.array([point.at.astimezone(UTC) for point in points], pa.timestamp("us", tz="UTC")),
            "usd_nanos_per_hour": pa.array(nanos, pa.int64()),
            "nth": pa.array(range(len(points)), pa.int64()),
        }
    )


def _parts_to_merge(parts: tuple[HistoryPart, ...]) -> tuple[HistoryPart, ...]:
    """Return the parts to merge when a month has many.

    They are the smallest, up to one that outweighs the rest twice over. A large part is thus rewritten only when much
    has accumulated, and each point only a few times in all.
    """
    if len(parts) <= MOST_PARTS:
        return ()
    chosen: list[HistoryPart] = []
    weight = 0
    for part in sorted(parts, key=lambda part: part.size):
        if len(chosen) > MOST_PARTS // 2 and part.size > 2 * weight:
            break
        chosen.append(part)
        weight += part.size
    return tuple(chosen)


def _merge(folder: Path, month: str, parts: tuple[HistoryPart, ...]) -> None:
    """Write one part in the place of several.

    Equal points become one with the highest number; of other points all stay.
    """
    import duckdb

    content = ", ".join(CONTENT)
    with connect() as connection:
        try:
            open_parts(connection, parts)
            merged = f"SELECT {content}, max(batch) AS batch FROM stored GROUP BY {content} ORDER BY {_ORDER}"
            write_part(folder, month, max(part.number for part in parts), connection, merged)
        except duckdb.Error as error:
            raise find_bad_parts(connection, parts, error) from None
    remove_parts(parts)


def write_part(folder: Path, month: str, number: int, connection: duckdb.DuckDBPyConnection, rows: str) -> None:
    """Write one part with the rows that the query ``rows`` gives: the columns of ``CONTENT``, then ``batch``."""
    options = (
        f"FORMAT parquet, PARQUET_VERSION V2, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS_IN_GROUP}, USE_TMP_FILE false, "
        f"KV_METADATA {{{VERSION_KEY}: '{SCHEMA_VERSION}'}}"
    )

    def fill(path: Path) -> None:
        connection.execute(f"COPY ({rows}) TO {duckdb_session.sql_text(str(path))} ({options})")

    publish_part(folder, month, number, fill)
