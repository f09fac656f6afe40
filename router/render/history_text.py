"""Series of a price history as a table that fits the screen, a wide table, JSON or CSV. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from router.prices.history_stats import BucketedSeries, SeriesName, SeriesStats
from router.render.offers_text import format_price
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import MARKETS, PLAIN, Screen, format_timestamp

BLOCKS = "▁▂▃▄▅▆▇█"

NARROW_BUCKETS, WIDE_BUCKETS = 8, 40


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Series to show between two moments; ``trends`` holds the bucketed values for sparklines."""

    since: datetime
    until: datetime
    series: tuple[SeriesStats, ...]
    trends: Mapping[SeriesName, BucketedSeries]


def table(shown: HistoryView, screen: Screen = PLAIN) -> str:
    """Return a table that fits the screen, with a legend."""
    places = {s.name[:5] for s in shown.series}
    legend = [
        f"{format_timestamp(shown.since)} to {format_timestamp(shown.until)}; dollars an hour of one machine",
        "MEAN over time; MOVES: price changes; STOCK: observations that found machines",
    ]
    if len(places) < len(shown.series):
        legend.append("a place with two rows has prices from two sources, -o wide names them")
    return "\n".join([_series_table(shown).text(shown.series, screen), "", *legend]) + "\n"


def wide(shown: HistoryView, screen: Screen = PLAIN) -> str:
    """Return a table of all fields, as wide as needed."""
    return _series_table(shown).text(shown.series, screen, wide=True) + "\n"


def as_json(shown: HistoryView) -> str:
    """Return a JSON object with ``schema_version``, the period and the series."""
    document = {
        "since": shown.since.isoformat(),
        "now": shown.until.isoformat(),
        "series": _series_table(shown).records(shown.series),
    }
    return json_document(document, ascii_only=False)


def as_csv(shown: HistoryView) -> str:
    """Return CSV with one row per series and the fields of the JSON records; unknown values are blank."""
    return _series_table(shown).csv(shown.series)


def _series_table(shown: HistoryView) -> RecordTable[SeriesStats]:
    """Return the table of series with the course of each; money is an exact decimal string in JSON and CSV."""
    return RecordTable(
        (
            TableColumn("", format_place, "PLACE", least=14),
            *attribute_columns("cloud", "region", "zone"),
            TableColumn("instance_type", lambda s: s.instance_type, "MACHINE", least=11),
            TableColumn("", lambda s: s.market, "MKT", MARKETS.__getitem__, wide=False),
            TableColumn("market", lambda s: s.market.value, "MARKET", wide=True),
            TableColumn("source", lambda s: s.source or None),
            TableColumn("last_usd_per_hour", lambda s: s.last, "LAST", format_price, right=True),
            TableColumn("last_at", lambda s: s.last_at, "SAID AT", format_timestamp, wide=True),
            TableColumn("min_usd_per_hour", lambda s: s.lowest, "LOW", format_price, right=True),
            TableColumn("max_usd_per_hour", lambda s: s.highest, "HIGH", format_price, right=True),
            TableColumn("mean_usd_per_hour", lambda s: s.mean, "MEAN", format_price, right=True),
            TableColumn("", lambda s: s.changes if s.points else None, "MOVES", right=True),
            *attribute_columns("changes", "points"),
            TableColumn("available", lambda s: s.available, "STOCK", "{:.0%}".format, right=True),
            TableColumn("", lambda s: s.observations or None, "LOOKS", right=True, wide=True),
            TableColumn("observations", lambda s: s.observations),
            TableColumn("score", lambda s: s.score, "SCORE", "{:.2f}".format, right=True, wide=True),
            TableColumn("", lambda s: _trend(shown, s), "COURSE"),
            TableColumn("", lambda s: s.source, "SOURCE", wide=True),
        )
    )


def format_place(series: SeriesStats) -> str:
    """Return a place such as ``aws/us-east-1a``: the zone if its name contains the region, else both."""
    zone = series.zone or series.region
    return f"{series.cloud}/{zone if zone.startswith(series.region) else f'{series.region}/{zone}'}"


def cells(series: SeriesStats) -> tuple[str, str, str, str, str]:
    """Return last, lowest, highest and mean price, and the stock, as text."""
    prices = (series.last, series.lowest, series.highest, series.mean)
    last, lowest, highest, mean = ("" if price is None else format_price(price) for price in prices)
    return last, lowest, highest, mean, "" if series.available is None else f"{series.available:.0%}"


def _trend(shown: HistoryView, series: SeriesStats) -> str:
    """Return a sparkline of the price over time, or of the stock if there is no price."""
    trend = shown.trends.get(series.name)
    if trend is None:
        return ""
    if series.last is None:
        return sparkline(trend.available)
    return sparkline([None if price is None else price.dollars() for price in trend.prices])


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
