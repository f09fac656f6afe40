"""Availability of single spot pools from the price history: every observation, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.places import Market
from router.prices.history_sql import IS_CURRENT_ROW, PLACE, Selection, from_microseconds, query_parts
from router.spot.policies.interface import SpotPoolKey

if TYPE_CHECKING:
    import duckdb

_AT_A_TIME = 100_000


def list_observed_pools(folder: Path, since: datetime, until: datetime) -> tuple[SpotPoolKey, ...]:
    """Return the spot pools that were observed between the two moments, in order.

    InvalidInputError as :func:`read_observations`.
    """
    where, values = Selection(markets=(Market.SPOT,)).where(since, until)
    sql = f"""
        SELECT DISTINCT cloud, region, coalesce(zone, ''), instance_type FROM stored
        WHERE {where} AND available IS NOT NULL ORDER BY ALL"""

    def read(connection: duckdb.DuckDBPyConnection) -> tuple[SpotPoolKey, ...]:
        return tuple((str(c), str(r), str(z), str(t)) for c, r, z, t in connection.execute(sql, values).fetchall())

    return query_parts(folder, read, since, until) or ()


def read_observations(
    folder: Path, pools: Collection[SpotPoolKey], since: datetime, until: datetime
) -> Mapping[SpotPoolKey, tuple[tuple[datetime, bool], ...]]:
    """Return, of each pool observed between the two moments, each observation and whether there were machines.

    Of several sources the one that observed most often counts. InvalidInputError for a file that cannot be read.
    """
    if not pools:
        return {}
    which = Selection(
        regions=tuple(sorted({f"{cloud}/{region}" for cloud, region, _, _ in pools})),
        instance_types=tuple(sorted({kind for *_, kind in pools})),
        markets=(Market.SPOT,),
    )
    where, values = which.where(since, until)
    sql = f"""
        SELECT cloud, region, coalesce(zone, ''), instance_type, source, epoch_us("at"), available > 0
        FROM (SELECT * FROM stored WHERE {where} QUALIFY {IS_CURRENT_ROW}) WHERE available IS NOT NULL
        ORDER BY {", ".join(PLACE)}, source, "at" """

    def read(connection: duckdb.DuckDBPyConnection) -> dict[SpotPoolKey, tuple[tuple[datetime, bool], ...]]:
        most: dict[SpotPoolKey, tuple[tuple[datetime, bool], ...]] = {}
        for series, rows in groupby(_rows(connection.execute(sql, values)), key=itemgetter(0, 1, 2, 3, 4)):
            pool: SpotPoolKey = series[:4]
            if pool in pools:
                seen = tuple((from_microseconds(at), bool(up)) for *_, at, up in rows)
                if len(seen) > len(most.get(pool, ())):
                    most[pool] = seen
        return most

    return query_parts(folder, read, since, until) or {}


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str, str, str, int, bool]]:
    while rows := cursor.fetchmany(_AT_A_TIME):
        yield from rows
