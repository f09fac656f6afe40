"""Draw a price history for a file: the picture of the console, as SVG or as a page with its figures as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pricing.problems import InvalidInputError
from router.prices.history import Selection
from router.prices.history_stats import SeriesStats, read_buckets, read_price_steps
from router.render.drawing import stand_alone
from router.render.history_text import HistoryView, cells, format_place
from router.render.pages import html_document, html_table
from router.render.price_history_svg import HISTORIES, MOST_ROWS, PLOT_HEIGHT, draw_history
from router.render.prices_view import HistoryReport, SeriesPicture
from router.render.tables import format_timestamp

_STOCK_INTERVALS = 240
_PLOTS, _HIGHEST_PLOT = 480.0, 160.0  # pixels that all rows share, and those of one
_PAGE_STYLE = """
body { max-width: 70em }
th, td { text-align: left; padding: 0.2em 0.8em 0.2em 0; border-bottom: 1px solid var(--line) }
"""


def check(file: Path) -> None:
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
