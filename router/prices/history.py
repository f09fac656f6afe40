"""Price, stock and score over time: append-only Parquet by month in one folder, queried through DuckDB.

docs/design/prices.md gives the reasons for this layout. Reading takes no lock and changes nothing; a folder
that does not exist is an empty history. InvalidInputError names a file that cannot be read and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.places import RegionId
from router.prices.history_sql import (
    CONTENT,
    EVERYTHING,
    IS_CURRENT_ROW,
    Selection,
    fetch_rows,
    from_microseconds,
    list_parts,
    query_parts,
)
from router.prices.history_write import Appended, Compacted, append, compact

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

# The names that this module passes on from others.
__all__ = ["EVERYTHING", "Appended", "Compacted", "Selection", "append", "compact"]

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
