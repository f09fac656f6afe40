"""Chart of the price history, prices as steps and stock as strips below, as PNG or self-contained HTML."""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing.money import UsdPerHour
from pricing.problems import InvalidInputError
from router.prices.history import Selection
from router.prices.history_stats import BucketedSeries, SeriesName, SeriesStats, read_buckets, read_price_steps
from router.render.history_text import HistoryView, cells, format_place
from router.render.svg import COLOURS
from router.render.tables import format_timestamp
from router.render.web_page import html_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_PAGE_STYLE = """
body { max-width: 70em }
svg { width: 100% }
th, td { text-align: left; padding: 0.2em 0.8em 0.2em 0; border-bottom: 1px solid #ddd }
"""


def page(view: HistoryView, svg: str) -> str:
    """Return a page with the chart and its figures as text, without external scripts, links or fonts."""
    header = ("place", "machine", "market", "last", "lowest", "highest", "mean", "stock", "source")
    rows = [(format_place(s), s.instance_type, s.market.value, *cells(s), s.source) for s in view.series]
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    title = f"Price history, {format_timestamp(view.since)} to {format_timestamp(view.until)}"
    picture = svg[svg.index("<svg") :]
    return html_document(
        title,
        _PAGE_STYLE,
        f"""<h1>{title}</h1>
{picture}
<p>Dollars an hour of one machine; the mean is over time. Stock: share of observations that found machines.</p>
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>""",
    )


DASHES = ("-", "--", "-.", ":")


MOST_SERIES = 8


STRIP = 240


_DOTS_PER_INCH = 140


Step = tuple[datetime, UsdPerHour]


_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # a name may hold dollar signs
    "svg.hashsalt": "stepfare",  # makes the bytes reproducible
}


def check(file: Path) -> None:
    """Raise InvalidInputError for a suffix that is neither .png nor .html."""
    if file.suffix.lower() not in {".png", ".html"}:
        raise InvalidInputError.single(
            f"{file.name} is neither .png nor .html", field="--plot", remedy="name a .png or an .html file"
        )


def draw(file: Path, folder: Path, shown: HistoryView) -> tuple[bytes | None, str]:
    """Plot the first series of ``shown``.

    Returns the content of the file, None where there is nothing to draw, and a note for the user, "" for none.
    """
    drawable = [s for s in shown.series if s.last is not None or s.observations]
    if not drawable:
        return None, f"{file.name} is not written: these series have neither a price nor stock"
    series = tuple(drawable[:MOST_SERIES])
    note = f"{file.name} shows {len(series)} of {len(shown.series)} series" if len(series) < len(shown.series) else ""
    shown = replace(shown, series=series)
    figure = make_figure(folder, shown)
    stream = io.BytesIO()
    if file.suffix.lower() == ".png":
        _save(figure, stream, "png", {"Software": None})
        return stream.getvalue(), note
    _save(figure, stream, "svg", {"Creator": None, "Date": None, "Format": None, "Type": None})
    return page(shown, stream.getvalue().decode()).encode(), note


def make_figure(folder: Path, shown: HistoryView) -> Figure:
    """Return a figure with prices on top and, where stock was observed, one strip per series below."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    selection = _select_series(shown.series)
    steps = read_price_steps(folder, selection, shown.since, shown.until)
    begin = _start(shown, steps, read_buckets(folder, selection, shown.since, shown.until, STRIP))
    stock = read_buckets(folder, selection, begin, shown.until, STRIP)
    shown = replace(shown, since=begin)
    watched = [s for s in shown.series if s.observations]
    priced = [s for s in shown.series if s.last is not None]
    heights = ([3.4] if priced else []) + ([0.5 + 0.24 * len(watched)] if watched else [])
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, sum(heights) + 0.9 + 0.18 * len(priced)), layout="constrained")
        axes = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
        if priced:
            _prices(axes[0], shown, priced, steps)
        if watched:
            _stock(axes[-1], shown, watched, {s.name: stock[s.name].available for s in watched})
        _time_axis(axes[-1], shown)
        figure.suptitle(_common(shown.series), fontsize=11)
        if len(shown.series) > 1 and priced:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _select_series(series: Sequence[SeriesStats]) -> Selection:
    return Selection(
        clouds=tuple(sorted({s.cloud for s in series})),
        regions=tuple(sorted({f"{s.cloud}/{s.region}" for s in series})),
        instance_types=tuple(sorted({s.instance_type for s in series})),
        markets=tuple(sorted({s.market for s in series})),
    )


def _prices(
    ax: Axes, shown: HistoryView, series: Sequence[SeriesStats], steps: Mapping[SeriesName, Sequence[Step]]
) -> None:
    for s in series:
        times: Any = [at for at, _ in steps[s.name]] + [shown.until]
        dollars = [price.dollars() for _, price in steps[s.name]]
        colour, dash = _line_style(shown, s.name)
        ax.step(
            times, [*dollars, dollars[-1]], where="post", color=colour, ls=dash, lw=1.4, label=_label(s, shown.series)
        )
    ax.yaxis.set_major_formatter("${x:,.2f}")
    ax.set_ylabel("US dollars an hour\nfor one machine")
    ax.grid(axis="y", color="#dddddd", lw=0.6)
    ax.margins(y=0.12)


def _stock(
    ax: Axes, shown: HistoryView, series: Sequence[SeriesStats], shares: dict[SeriesName, Sequence[float | None]]
) -> None:
    from matplotlib import colormaps
    from matplotlib.dates import date2num

    # A single hue from pale to dark is used, because a diverging scale would suggest a meaningful middle.
    shades = colormaps["Blues"].with_extremes(bad="#d8d5ce")
    rows = [[float("nan") if share is None else share for share in shares[s.name]] for s in series]
    extent = (date2num(shown.since), date2num(shown.until), len(series) - 0.5, -0.5)  # type: ignore[no-untyped-call]
    image = ax.imshow(rows, aspect="auto", cmap=shades, vmin=0, vmax=1, extent=extent, interpolation="nearest")
    ax.set_yticks(range(len(series)), [_label(s, shown.series) for s in series])
    for tick, s in zip(ax.yaxis.get_major_ticks(), series, strict=True):
        tick.tick1line.set(
            markersize=9, markeredgewidth=4, markeredgecolor=_line_style(shown, s.name)[0], visible=s.last is not None
        )
    for row in range(1, len(series)):
        ax.axhline(row - 0.5, color="white", lw=2)
    ax.tick_params(axis="y", pad=8)
    bar = ax.figure.colorbar(image, ax=ax, ticks=[0, 0.5, 1], format="{x:.0%}", pad=0.01, fraction=0.03)
    bar.set_label("found machines\n(grey: nobody looked)")


def _start(
    shown: HistoryView, steps: Mapping[SeriesName, Sequence[Step]], stock: Mapping[SeriesName, BucketedSeries]
) -> datetime:
    """Return the start of the chart, which is that of the earliest series."""
    length = shown.until - shown.since
    begins = [series_steps[0][0] for series_steps in steps.values()]
    begins += [
        shown.since + length * min(i for i, share in enumerate(buckets.available) if share is not None) / STRIP
        for buckets in stock.values()
        if any(share is not None for share in buckets.available)
    ]
    first = min(begins, default=shown.since)
    return first if first < shown.until else shown.since


def _time_axis(ax: Axes, shown: HistoryView) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        formats=["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
        zero_formats=["", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
        offset_formats=["", "", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
    )
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(formatter)
    ax.set_xlim(shown.since, shown.until)  # type: ignore[arg-type]
    ax.set_xlabel("UTC")


def _line_style(shown: HistoryView, name: SeriesName) -> tuple[str, str]:
    index = [s.name for s in shown.series].index(name)
    return COLOURS[index % len(COLOURS)], DASHES[index // 2 % len(DASHES)]


def _parts(series: SeriesStats) -> tuple[str, str, str, str]:
    return (format_place(series), series.instance_type, series.market.value.replace("_", " "), series.source)


def _shared(series: Sequence[SeriesStats]) -> list[bool]:
    """Return which of place, machine, market and source all series share."""
    return [len(set(values)) == 1 for values in zip(*map(_parts, series), strict=True)]


def _common(series: Sequence[SeriesStats]) -> str:
    """Return the values that all series share, as a title."""
    parts = [part for part, same in zip(_parts(series[0]), _shared(series), strict=True) if same and part]
    return textwrap.fill(", ".join(parts), 90)


def _label(s: SeriesStats, among: Sequence[SeriesStats]) -> str:
    """Return the values that tell a series from the others."""
    parts = [part for part, same in zip(_parts(s), _shared(among), strict=True) if not same and part]
    return ", ".join(parts) or format_place(s)


def _save(figure: Figure, stream: io.BytesIO, kind: str, metadata: dict[str, None]) -> None:
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure.savefig(stream, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata)
