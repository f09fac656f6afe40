"""Statistics of each series over a period, computed inside DuckDB: fifty million rows never reach Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing.money import UsdPerHour, divide_half_even
from pricing.offers import MachinePool
from pricing.places import Market
from router.prices.history_sql import (
    IS_CURRENT_ROW,
    Selection,
    fetch_rows,
    from_microseconds,
    query_parts,
    to_microseconds,
)

if TYPE_CHECKING:
    import duckdb

# A price from before the period holds at its beginning if it was stated at most this long before.
LOOK_BACK = timedelta(days=92)
_MICROSECOND = timedelta(microseconds=1)
_PLACE = "cloud, region, zone, instance_type, market"
SeriesName = tuple[str, str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class SeriesStats(MachinePool):
    """The statistics of one place, machine type, market and price source ("" where no source states a price).

    ``mean`` is weighted by time: a price holds until the next, the last one until the end, the one before the first
    point from the beginning. ``changes`` counts stated prices that differ from the one before. ``available`` is the
    mean of what was observed there, by whatever source, ``observations`` times; ``score`` is the last one. None: not
    observed.
    """

    source: str
    last: UsdPerHour | None
    last_at: datetime | None
    lowest: UsdPerHour | None
    highest: UsdPerHour | None
    mean: UsdPerHour | None
    changes: int
    points: int
    available: float | None
    observations: int
    score: float | None

    @property
    def name(self) -> SeriesName:
        """Return the key that tells the series from all others."""
        return (*self.key, self.source)


def compute_statistics(folder: Path, which: Selection, since: datetime, now: datetime) -> tuple[SeriesStats, ...]:
    """Return every series that has a point with ``since`` <= at <= ``now``, lowest last price first, then by name."""
    sql, values = _common_tables(which, since, now)
    sql += f"""
        SELECT {_PLACE}, coalesce(source, ''), last, last_at, least, most, weight, hours, coalesce(changes, 0),
            coalesce(points, 0), available, coalesce(observations, 0), score
        FROM (
            SELECT {_PLACE}, source, arg_max(nanos, at_us) AS last, max(at_us) AS last_at, min(nanos) AS least,
                max(nanos) AS most, sum(nanos::HUGEINT * length) AS weight, sum(length) AS hours,
                count(*) FILTER (nanos <> before) AS changes, count(*) FILTER (NOT carried) AS points
            FROM steps GROUP BY {_PLACE}, source HAVING NOT bool_and(carried)
        ) FULL JOIN (
            SELECT {_PLACE}, avg(available) AS available, count(available) AS observations,
                arg_max(score, "at") FILTER (score IS NOT NULL) AS score
            FROM within WHERE available IS NOT NULL OR score IS NOT NULL GROUP BY {_PLACE}
        ) USING ({_PLACE})
        ORDER BY last NULLS LAST, {_PLACE}, source"""
    rows = fetch_rows(folder, sql, values, since - LOOK_BACK, now + _MICROSECOND)
    return tuple(_read_statistics(row) for row in rows)


def _common_tables(which: Selection, since: datetime, now: datetime) -> tuple[str, list[object]]:
    """Return the SQL of two tables, and its parameters.

    ``within``: the points that count; ``steps``: prices with how long each held (``length``, microseconds).
    """
    where, values = which.where(since, now + _MICROSECOND)
    earlier, earlier_values = which.where(since - LOOK_BACK, since)
    sql = f"""
        WITH within AS (
            SELECT * REPLACE (coalesce(zone, '') AS zone) FROM stored WHERE {where} QUALIFY {IS_CURRENT_ROW}
        ), prices AS (
            SELECT {_PLACE}, source, epoch_us("at") AS at_us, usd_nanos_per_hour AS nanos, false AS carried
            FROM within WHERE usd_nanos_per_hour IS NOT NULL
            UNION ALL
            SELECT cloud, region, coalesce(zone, ''), instance_type, market, source, {to_microseconds(since)},
                max({{"at": "at", batch: batch, nanos: usd_nanos_per_hour}}).nanos, true
            FROM stored WHERE usd_nanos_per_hour IS NOT NULL AND {earlier}
            GROUP BY cloud, region, coalesce(zone, ''), instance_type, market, source
        ), steps AS (
            SELECT *, coalesce(lead(at_us) OVER in_time, {to_microseconds(now)}) - at_us AS length,
                lag(nanos) OVER in_time AS before
            FROM prices WINDOW in_time AS (PARTITION BY {_PLACE}, source ORDER BY at_us, carried DESC)
            QUALIFY NOT carried OR length > 0
        )"""
    return sql, [*values, *earlier_values]


def _read_statistics(row: Sequence[Any]) -> SeriesStats:
    cloud, region, zone, instance_type, market, source, last, last_at, lowest, highest, weight, length, *rest = row
    mean = last if not length or weight is None else divide_half_even(weight, length)
    return SeriesStats(
        cloud,
        region,
        zone or None,
        instance_type,
        Market(market),
        source,
        _price(last),
        None if last_at is None else from_microseconds(last_at),
        _price(lowest),
        _price(highest),
        _price(mean),
        *rest,
    )


def _price(nanos: int | None) -> UsdPerHour | None:
    return None if nanos is None else UsdPerHour(nanos)


@dataclass(frozen=True, slots=True)
class BucketedSeries:
    """A series in equal intervals: the price at the end of each, and the mean observation in it."""

    prices: tuple[UsdPerHour | None, ...]
    available: tuple[float | None, ...]


def read_buckets(
    folder: Path, which: Selection, since: datetime, now: datetime, count: int
) -> Mapping[SeriesName, BucketedSeries]:
    """Return every series of :func:`statistics` in ``count`` intervals. A price holds until the next."""
    sql, values = _common_tables(which, since, now)
    begin, width = to_microseconds(since), max(1, -(-((now - since) // _MICROSECOND) // count))
    # ``now`` itself belongs to the last bucket.
    bucket = f"least(({{}} - {begin}) // {width}, {count - 1})"
    prices = f"""{sql}
        SELECT {_PLACE}, source, {bucket.format("at_us")} AS bucket, arg_max(nanos, at_us)
        FROM steps GROUP BY ALL ORDER BY ALL"""
    stock = f"""{sql}
        SELECT {_PLACE}, {bucket.format('epoch_us("at")')} AS bucket, avg(available)
        FROM within WHERE available IS NOT NULL GROUP BY ALL"""

    def read(connection: duckdb.DuckDBPyConnection) -> dict[SeriesName, BucketedSeries]:
        shares: dict[tuple[str, str, str, str, str], dict[int, float]] = {}
        for c, r, z, kind, market, bucket, available in connection.execute(stock, values).fetchall():
            shares.setdefault((c, r, z, kind, market), {})[bucket] = available
        stated: dict[SeriesName, dict[int, int]] = {}
        for c, r, z, kind, market, source, bucket, nanos in connection.execute(prices, values).fetchall():
            stated.setdefault((c, r, z, kind, market, source), {})[bucket] = nanos
        for c, r, z, kind, market in sorted(shares.keys() - {name[:5] for name in stated}):
            stated[c, r, z, kind, market, ""] = {}
        return {
            name: BucketedSeries(
                _prices_at_bucket_ends(buckets, count), tuple(shares.get(name[:5], {}).get(i) for i in range(count))
            )
            for name, buckets in stated.items()
        }

    return query_parts(folder, read, since - LOOK_BACK, now + _MICROSECOND) or {}


def read_price_steps(
    folder: Path, which: Selection, since: datetime, now: datetime
) -> Mapping[SeriesName, tuple[tuple[datetime, UsdPerHour], ...]]:
    """Return every price of every series of :func:`statistics`, with the moment it began to hold, in order of time.

    No moment is before ``since``.
    """
    sql, values = _common_tables(which, since, now)
    sql += f"SELECT {_PLACE}, source, at_us, nanos FROM steps ORDER BY {_PLACE}, source, at_us"
    steps: dict[SeriesName, list[tuple[datetime, UsdPerHour]]] = {}
    for c, r, z, kind, market, source, at, nanos in fetch_rows(
        folder, sql, values, since - LOOK_BACK, now + _MICROSECOND
    ):
        steps.setdefault((c, r, z, kind, market, source), []).append((from_microseconds(at), UsdPerHour(nanos)))
    return {name: tuple(prices) for name, prices in steps.items()}


def _prices_at_bucket_ends(stated: Mapping[int, int], count: int) -> tuple[UsdPerHour | None, ...]:
    """Return the price at the end of each bucket: the last one stated in it or before it."""
    prices: list[UsdPerHour | None] = []
    for bucket in range(count):
        before = prices[-1] if prices else None
        prices.append(UsdPerHour(stated[bucket]) if bucket in stated else before)
    return tuple(prices)
