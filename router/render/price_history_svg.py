"""Draw series of prices as SVG: a row each on one scale of money and time, with stock as a strip below. Pure functions.

The table beside the drawing has the same figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pricing.money import Usd, UsdPerHour
from router.render import drawing
from router.render.axes import LaneLayout, Scale, TimeScale, free_ticks, time_words
from router.render.drawing import fit_text, line, polyline, rect, text
from router.render.figures import MARKET_LETTERS, money
from router.render.history_text import format_place
from router.render.prices_view import HistoryReport, SeriesPicture

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
