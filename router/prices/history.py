"""Price, stock and score over time: append-only Parquet by month in one folder, queried through DuckDB.

docs/design/prices.md gives the reasons for this layout. Adding points and merging parts are each under the folder's
lock. Reading takes no lock and changes nothing; a folder that does not exist is an empty history. InvalidInputError
names a file that cannot be read and what to do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.history import PricePoint
from pricing.places import RegionId
from router.files import duckdb_session
from router.prices.history_sql import (
    CONTENT,
    EVERYTHING,
    IS_CURRENT_ROW,
    KEY,
    SCHEMA_VERSION,
    VALUES,
    VERSION_KEY,
    HistoryPart,
    Selection,
    connect,
    fetch_rows,
    find_bad_parts,
    from_microseconds,
    list_parts,
    lock_for_writing,
    month_of,
    open_parts,
    publish_part,
    query_parts,
    remove_parts,
)

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

# The names that this module passes on from others.
__all__ = ["EVERYTHING", "Selection"]

_COLUMNS = ", ".join(CONTENT)
_ORDER = 'cloud, region, instance_type, market, zone, "at", source'


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """The extent of a history.

    Rows as stored (a point that was corrected counts twice), months as ``2026-11``, the moments of the first and the
    last point (None without any), parts and their bytes.
    """

    rows: int
    months: tuple[str, ...]
    clouds: tuple[str, ...]
    first: datetime | None
    last: datetime | None
    parts: int
    size: int


def read_series(
    folder: Path, which: Selection = EVERYTHING, since: datetime | None = None, until: datetime | None = None
) -> pd.DataFrame:
    """Return the points of the selection with ``since`` <= at < ``until``, each once, sorted by series and time.

    Columns: at (UTC, microseconds), cloud, region, zone, instance_type, market, usd_nanos_per_hour (Int64, exact),
    available, score, source; unknown is NA. Only months and row groups that can matter are read.
    """
    where, values = which.where(since, until)
    sql = f"SELECT {_COLUMNS} FROM stored WHERE {where} QUALIFY {IS_CURRENT_ROW} ORDER BY {_ORDER}"
    return _frame(query_parts(folder, lambda connection: _table(connection, sql, values), since, until))


def latest_by_region(folder: Path, which: Selection = EVERYTHING) -> Mapping[RegionId, datetime]:
    """Return, by region, the moment of its last point in the selection; regions without points are left out."""
    where, values = which.where()
    sql = f'SELECT cloud, region, epoch_us(max("at")) FROM stored WHERE {where} GROUP BY cloud, region ORDER BY ALL'
    return {RegionId(cloud, region): from_microseconds(at) for cloud, region, at in fetch_rows(folder, sql, values)}


def list_names(folder: Path) -> Mapping[str, frozenset[str]]:
    """Return every name in the history by column, to tell a typing mistake from an empty answer.

    Regions are there both as ``us-east-1`` and as ``aws/us-east-1``.
    """
    rows = fetch_rows(folder, "SELECT DISTINCT cloud, region, zone, instance_type FROM stored")
    return {
        "cloud": frozenset(row[0] for row in rows),
        "region": frozenset(name for cloud, region, _, _ in rows for name in (region, f"{cloud}/{region}")),
        "zone": frozenset(row[2] for row in rows if row[2] is not None),
        "instance_type": frozenset(row[3] for row in rows),
    }


def summarize(folder: Path) -> HistorySummary:
    """Return how much the history holds, from when to when."""
    sql = """SELECT count(*), epoch_us(min("at")), epoch_us(max("at")), list(DISTINCT cloud) FROM stored"""
    rows = fetch_rows(folder, sql)
    count, first, last, clouds = rows[0] if rows else (0, None, None, None)
    parts = list_parts(folder)
    return HistorySummary(
        rows=count,
        months=tuple(sorted({part.month for part in parts})),
        clouds=tuple(sorted(clouds or ())),
        first=None if first is None else from_microseconds(first),
        last=None if last is None else from_microseconds(last),
        parts=len(parts),
        size=sum(part.size for part in parts),
    )


def _table(connection: duckdb.DuckDBPyConnection, sql: str, values: list[object]) -> pa.Table:
    return connection.sql(sql, params=values).to_arrow_table()


def _frame(table: pa.Table | None) -> pd.DataFrame:
    """Return the table as a pandas frame, with whole numbers as such even where some are missing."""
    import pandas as pd
    import pyarrow as pa

    if table is None:
        kinds = {"at": "datetime64[us, UTC]", "usd_nanos_per_hour": "Int64", "available": "float64", "score": "float64"}
        columns = [name.strip('"') for name in CONTENT]
        return pd.DataFrame({name: pd.Series(dtype=kinds.get(name, "str")) for name in columns})
    frame: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


# Small enough that a year of one series reads a few per cent of the rows.
ROWS_IN_GROUP = 65_536
MOST_PARTS = 16
_PART_ORDER = 'cloud, region, instance_type, market, zone, "at", source, batch'
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
                write_part(folder, month, last, connection, f"FROM new ORDER BY {_PART_ORDER}")
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
            merged = f"SELECT {content}, max(batch) AS batch FROM stored GROUP BY {content} ORDER BY {_PART_ORDER}"
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
