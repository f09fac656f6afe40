"""Series of a price history as a table that fits the screen, a wide table, JSON or CSV. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pricing.money import UsdPerHour
from router.files.csv_text import records_csv
from router.prices.history_stats import BucketedSeries, SeriesName, SeriesStats
from router.render.offers_text import format_price
from router.render.tables import MARKETS, PLAIN, Screen, format_table, format_timestamp

BLOCKS = "▁▂▃▄▅▆▇█"

SCHEMA_VERSION = 1
NARROW_BUCKETS, WIDE_BUCKETS = 8, 40
_RIGHT = frozenset({"LAST", "LOW", "HIGH", "MEAN", "MOVES", "STOCK", "LOOKS", "SCORE"})
_LEAST = {"MACHINE": 11, "PLACE": 14}


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Series to show between two moments; ``trends`` holds the bucketed values for sparklines."""

    since: datetime
    until: datetime
    series: tuple[SeriesStats, ...]
    trends: Mapping[SeriesName, BucketedSeries]


def table(shown: HistoryView, screen: Screen = PLAIN) -> str:
    """Return a table that fits the screen, with a legend."""
    header = ("PLACE", "MACHINE", "MKT", "LAST", "LOW", "HIGH", "MEAN", "MOVES", "STOCK", "COURSE")
    rows = [
        (
            format_place(s),
            s.instance_type,
            MARKETS[s.market.value],
            _price(s.last),
            _price(s.least),
            _price(s.most),
            _price(s.mean),
            str(s.changes) if s.points else "",
            _share(s.available),
            _trend(shown, s),
        )
        for s in shown.series
    ]
    places = {s.name[:5] for s in shown.series}
    legend = [
        f"{format_timestamp(shown.since)} to {format_timestamp(shown.until)}; dollars an hour of one machine",
        "MEAN over time; MOVES: price changes; STOCK: observations that found machines",
    ]
    if len(places) < len(rows):
        legend.append("a place with two rows has prices from two sources, -o wide names them")
    text = format_table(header, rows, _RIGHT, _column_widths(header, rows, screen.width), screen)
    return "\n".join([text, "", *legend]) + "\n"


def wide(shown: HistoryView, screen: Screen = PLAIN) -> str:
    """Return a table of all fields, as wide as needed."""
    header = (
        "PLACE",
        "MACHINE",
        "MARKET",
        "LAST",
        "SAID AT",
        "LOW",
        "HIGH",
        "MEAN",
        "MOVES",
        "STOCK",
        "LOOKS",
        "SCORE",
        "COURSE",
        "SOURCE",
    )
    rows = [
        (
            format_place(s),
            s.instance_type,
            s.market.value,
            _price(s.last),
            "" if s.last_at is None else format_timestamp(s.last_at),
            _price(s.least),
            _price(s.most),
            _price(s.mean),
            str(s.changes) if s.points else "",
            _share(s.available),
            str(s.observations) if s.observations else "",
            "" if s.score is None else f"{s.score:.2f}",
            _trend(shown, s),
            s.source,
        )
        for s in shown.series
    ]
    return format_table(header, rows, _RIGHT, {}, screen) + "\n"


def as_json(shown: HistoryView) -> str:
    """Return a JSON object with ``schema_version``, the period and the series."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "since": shown.since.isoformat(),
        "now": shown.until.isoformat(),
        "series": [series_record(series) for series in shown.series],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def as_csv(shown: HistoryView) -> str:
    """Return CSV with one row per series and the fields of the JSON records; unknown values are blank."""
    return records_csv(FIELDS, map(series_record, shown.series))


FIELDS = (
    "cloud",
    "region",
    "zone",
    "instance_type",
    "market",
    "source",
    "last_usd_per_hour",
    "last_at",
    "min_usd_per_hour",
    "max_usd_per_hour",
    "mean_usd_per_hour",
    "changes",
    "points",
    "available",
    "observations",
    "score",
)


def series_record(series: SeriesStats) -> dict[str, str | int | float | None]:
    """Return the record of a series for JSON and CSV; money is an exact decimal string, the mean to the nano-dollar."""

    def exact(price: UsdPerHour | None) -> str | None:
        return None if price is None else str(price)

    return {
        "cloud": series.cloud,
        "region": series.region,
        "zone": series.zone,
        "instance_type": series.instance_type,
        "market": series.market.value,
        "source": series.source or None,
        "last_usd_per_hour": exact(series.last),
        "last_at": None if series.last_at is None else series.last_at.isoformat(),
        "min_usd_per_hour": exact(series.least),
        "max_usd_per_hour": exact(series.most),
        "mean_usd_per_hour": exact(series.mean),
        "changes": series.changes,
        "points": series.points,
        "available": series.available,
        "observations": series.observations,
        "score": series.score,
    }


def format_place(series: SeriesStats) -> str:
    """Return a place such as ``aws/us-east-1a``: the zone if its name contains the region, else both."""
    zone = series.zone or series.region
    return f"{series.cloud}/{zone if zone.startswith(series.region) else f'{series.region}/{zone}'}"


def cells(series: SeriesStats) -> tuple[str, str, str, str, str]:
    """Return last, lowest, highest and mean price, and the stock, as text."""
    prices = (series.last, series.least, series.most, series.mean)
    last, least, most, mean = (_price(price) for price in prices)
    return last, least, most, mean, _share(series.available)


def _price(price: UsdPerHour | None) -> str:
    return "" if price is None else format_price(price)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _trend(shown: HistoryView, series: SeriesStats) -> str:
    """Return a sparkline of the price over time, or of the stock if there is no price."""
    trend = shown.trends.get(series.name)
    if trend is None:
        return ""
    if series.last is None:
        return sparkline(trend.available)
    return sparkline([None if price is None else price.dollars() for price in trend.prices])


def _column_widths(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> dict[str, int]:
    """Return the widths of machine and place with which the table keeps to its width."""
    sizes = {name: max(len(name), *(len(row[i]) for row in rows)) for i, name in enumerate(header)}
    for name, least in _LEAST.items():
        over = sum(sizes.values()) + len(sizes) - 1 - width
        sizes[name] -= max(0, min(over, sizes[name] - least))
    return {name: sizes[name] for name in _LEAST}


def sparkline(values: Sequence[float | None]) -> str:
    """Return one block per value, scaled from the lowest to the highest value; a blank for unknown values.

    A constant series is drawn in the middle.
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    top = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round((value - low) / (high - low) * top) if high > low else top // 2]
        for value in values
    )
