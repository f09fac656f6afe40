"""Price histories as tables, JSON and CSV, and as pictures: rows on one scale of money and time. Pure but for files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from pricing.money import Usd, UsdPerHour
from pricing.problems import InvalidInputError
from router.prices.history import Selection
from router.prices.history_stats import BucketedSeries, SeriesName, SeriesStats, read_buckets, read_price_steps
from router.render import drawing
from router.render.axes import LaneLayout, Scale, TimeScale, free_ticks, time_words
from router.render.drawing import fit_text, line, polyline, rect, stand_alone, text
from router.render.figures import MARKET_LETTERS, money
from router.render.offers_text import format_price
from router.render.prices_view import HistoryReport, SeriesPicture
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


_STOCK_INTERVALS = 240
_PLOTS, _HIGHEST_PLOT = 480.0, 160.0  # pixels that all rows share, and those of one
_PAGE_STYLE = """
body { max-width: 70em }
th, td { text-align: left; padding: 0.2em 0.8em 0.2em 0; border-bottom: 1px solid var(--line) }
"""


def check_plot(file: Path) -> None:
    """Raise InvalidInputError for a suffix that is neither .svg nor .html."""
    suffix = file.suffix.lower()
    if suffix not in {".svg", ".html"}:
        wrong = ": only SVG is drawn now" if suffix == ".png" else " is neither .svg nor .html"
        raise InvalidInputError.single(f"{file.name}{wrong}", field="--plot", remedy="name a .svg or an .html file")


def draw(file: Path, folder: Path, shown: HistoryView) -> tuple[bytes | None, str]:
    """Plot the first series of ``shown``.

    Returns the content of the file, None where there is nothing to draw, and a note for the user, "" for none.
    """
    drawable = tuple(s for s in shown.series if s.last is not None or s.observations)
    if not drawable:
        return None, f"{file.name} is not written: these series have neither a price nor stock"
    report = _read_pictures(folder, shown, drawable[:MOST_ROWS])
    count = len(report.series)
    note = f"{file.name} shows {count} of {len(shown.series)} series" if count < len(shown.series) else ""
    drawn = draw_history(report, HISTORIES[0], min(max(_PLOTS / count, PLOT_HEIGHT), _HIGHEST_PLOT))
    content = stand_alone(drawn) if file.suffix.lower() == ".svg" else page(report, drawn)
    return content.encode(), note


def page(report: HistoryReport, drawn: str) -> str:
    """Return a page with the picture and its figures as text, without external scripts, links or fonts."""
    from router.render.pages import html_document, html_table  # templates, which the text does not need

    header = ("place", "machine", "market", "last", "lowest", "highest", "mean", "stock", "source")
    series = [each.stats for each in report.series]
    rows = [((format_place(s), s.instance_type, s.market.value, *cells(s), s.source), "") for s in series]
    title = f"Price history, {format_timestamp(report.since)} to {format_timestamp(report.until)}"
    return html_document(
        title,
        _PAGE_STYLE,
        f"""<h1>{title}</h1>
{drawn}
<p>Dollars an hour of one machine, all on one scale from $0; the mean is over time. Stock: share of observations that
found machines, as a strip below each line.</p>
{html_table(header, rows)}""",
    )


def _read_pictures(folder: Path, shown: HistoryView, series: tuple[SeriesStats, ...]) -> HistoryReport:
    """Return the series with every price and their stock by interval, from the earliest of them on."""
    selection = Selection(
        clouds=tuple(sorted({s.cloud for s in series})),
        regions=tuple(sorted({f"{s.cloud}/{s.region}" for s in series})),
        instance_types=tuple(sorted({s.instance_type for s in series})),
        markets=tuple(sorted({s.market for s in series})),
    )
    names = {s.name for s in series}
    steps = read_price_steps(folder, selection, shown.since, shown.until)
    coarse = read_buckets(folder, selection, shown.since, shown.until, _STOCK_INTERVALS)
    since = _first_moment(
        shown,
        (prices[0][0] for name, prices in steps.items() if name in names),
        (buckets.available for name, buckets in coarse.items() if name in names),
    )
    stock = read_buckets(folder, selection, since, shown.until, _STOCK_INTERVALS)
    pictures = tuple(SeriesPicture(s, None, steps.get(s.name, ()), stock[s.name].available, None) for s in series)
    return HistoryReport(since, shown.until, pictures, len(shown.series), None, None, None)


def _first_moment(
    shown: HistoryView, prices_begin: Iterable[datetime], stock: Iterable[tuple[float | None, ...]]
) -> datetime:
    """Return when the first price or look of any series is, so that no empty time is drawn."""
    interval = (shown.until - shown.since) / _STOCK_INTERVALS
    looks = (next((i for i, share in enumerate(shares) if share is not None), None) for shares in stock)
    begins = [*prices_begin, *(shown.since + interval * i for i in looks if i is not None)]
    first = min(begins, default=shown.since)
    return first if first < shown.until else shown.since


MOST_ROWS = 24
_TOP = 24.0
_STRIP = 8.0
HISTORIES = (LaneLayout(1078, 230, 62), LaneLayout(692, 190, 62), LaneLayout(340, 0, 62, narrow=True))
# How high the highest price of all is drawn.
PLOT_HEIGHT = 40.0
_PRICE_COLUMN = 62.0


def draw_history(report: HistoryReport, layout: LaneLayout, plot: float = PLOT_HEIGHT) -> str:
    """Return the first series as an SVG element; each row's scale is from $0 to the highest price of all."""
    shown = report.series[:MOST_ROWS]
    row_height = plot + _STRIP + (36 if layout.narrow else 18)
    prices = [price for each in shown for _, price in each.steps]
    top_price = max(prices, default=UsdPerHour(0))
    scale = TimeScale(report.since, report.until, report.until, layout.gutter, layout.width - _PRICE_COLUMN)
    bottom = _TOP + len(shown) * row_height
    parts = list(_draw_axis(scale, layout, bottom))
    for at, each in enumerate(shown):
        y = _TOP + at * row_height
        parts += _draw_row(each, scale, layout, y, top_price, plot)
    name = (
        "Prices over time: a row per place, machine and market, all on one scale from $0; below each line the share of "
        "looks that found machines, darker is more. The table below holds the same figures."
    )
    return drawing.picture(name, layout.width, bottom + 2, parts)


def _draw_axis(scale: TimeScale, layout: LaneLayout, bottom: float) -> Iterator[str]:
    for x, moment in free_ticks(scale.ticks(layout.spacing), time_words, scale.left_x - 30, layout.width):
        yield line(x, 18, x, bottom, "g")
        yield text(x, 12, time_words(moment), "s m")


def _draw_row(
    series: SeriesPicture, scale: TimeScale, layout: LaneLayout, y: float, top_price: UsdPerHour, plot: float
) -> list[str]:
    stats, market = series.stats, series.stats.market.value
    parts = [line(0, y, layout.width, y, "g")]
    names = f"{MARKET_LETTERS[market]} {format_place(stats)}", stats.instance_type
    if layout.narrow:
        parts.append(text(0, y + 14, fit_text(" ".join(names), layout.width - 8), "b"))
        y += 18
    else:
        room = layout.gutter - 14
        parts.append(text(0, y + 18, fit_text(names[0], room, bold=True), "b"))
        parts.append(text(0, y + 34, fit_text(names[1], room), "s"))
    floor = y + 8 + plot
    parts.append(line(scale.left_x, floor, scale.right_x, floor, "ax"))
    if series.steps and top_price.nanos:
        usd = Scale(0, top_price.nanos, floor, floor - plot)
        last = series.steps[-1][1]
        parts.append(_draw_steps(series, scale, usd))
        parts.append(text(scale.right_x + 6, min(usd.at(last.nanos) + 4, floor), money(Usd(last.nanos))))
    else:
        parts.append(text(scale.left_x + 6, floor - 14, "no price was stated", "s"))
    return parts + _draw_stock(series, scale, floor + 4)


def _draw_steps(series: SeriesPicture, scale: TimeScale, usd: Scale) -> str:
    heights = [usd.at(price.nanos) for _, price in series.steps]
    edges = [*(scale.at(at) for at, _ in series.steps), scale.at(scale.end)]
    points = [(x, y) for y, ends in zip(heights, pairwise(edges), strict=True) for x in ends]
    words = drawing.title(f"{format_place(series.stats)}, {series.stats.instance_type}: {len(series.steps)} prices")
    return polyline(points, f"ln {series.stats.market.value}", words)


def _draw_stock(series: SeriesPicture, scale: TimeScale, y: float) -> list[str]:
    """Return the strip of looks: nothing where nobody looked, an outline where no machine was found."""
    if not any(share is not None for share in series.stock):
        return []
    width = (scale.right_x - scale.left_x) / len(series.stock)
    parts = []
    for at, share in enumerate(series.stock):
        if share is None:
            continue
        x = scale.left_x + at * width
        parts.append(rect(x, y, width, _STRIP, "trk"))
        if share > 0:
            parts.append(rect(x, y, width, _STRIP, f"full {series.stats.market.value}", fill_opacity=f"{share:.2f}"))
    return parts
