"""Draw the cost of each gang of an estimate as a dot with its interval, cheapest first, as SVG. Pure functions."""

from __future__ import annotations

import math
from typing import Final

from pricing.money import Usd
from router.planning.estimate.gang_estimates import GangEstimate, JobEstimate, UsdSpan
from router.render import drawing
from router.render.axes import RowLayout, Scale, tick_unit
from router.render.estimate_text import dollars
from router.render.figures import MARKET_LETTERS, tick_in

_TOP, _AXIS = 8.0, 30.0
_TICKS: Final = 5


PLOTS = (
    RowLayout(1078, 150.0, 190.0, 30.0, dot=5.0),
    RowLayout(692, 130.0, 180.0, 30.0, dot=4.5),
    RowLayout(340, 0.0, 0.0, 44.0, above=True, dot=3.0),
)


def plot_unit(estimate: JobEstimate) -> str:
    """Return what the costs are of: a million tokens, or a step where the job has no tokens."""
    return "step" if estimate.tokens_per_step is None else "million tokens"


def draw_estimate(estimate: JobEstimate, layout: RowLayout) -> str:
    """Return the picture; empty where no gang has an answer."""
    rows = [
        (row, row.answer.usd_per_million_tokens or row.answer.usd_per_step)
        for row in estimate.rows
        if row.answer is not None
    ]
    if not rows:
        return ""
    left, right = layout.left_margin + 10, layout.width - layout.right_margin - 18
    most = max(_end(usd).dollars() for _, usd in rows)
    unit = tick_unit(most, _TICKS)
    scale = Scale(0.0, max(math.ceil(most / unit - 1e-9), 1) * unit, left, right)
    bottom = _TOP + layout.row * len(rows)
    parts = []
    for number in scale.ticks(unit):
        x, first = scale.at(number * unit), layout.above and number == 0
        parts.append(drawing.line(x, _TOP, x, bottom, "g"))
        parts.append(
            drawing.text(0 if first else x, bottom + 16, tick_in(number, unit, "USD"), "s" if first else "s m")
        )
    parts.append(drawing.line(left, bottom, right, bottom, "ax"))
    for index, (row, usd) in enumerate(rows):
        y = _TOP + layout.row * (index + (0.72 if layout.above else 0.5))
        parts.append(_interval(row, usd, scale, y, layout.dot))
        bold = "b" if index == 0 else ""
        words, amount = _gang_name(row), f"${dollars(usd)}"
        if layout.above:
            parts.append(drawing.text(0, y - 15, drawing.fit_text(words, 130), f"halo {bold}".strip()))
            parts.append(drawing.text(layout.width, y - 15, amount, f"e halo {bold}".strip()))
        else:
            parts.append(drawing.text(0, y + 4, drawing.fit_text(words, layout.left_margin), bold))
            parts.append(drawing.text(layout.width, y + 4, amount, f"e {bold}".strip()))
    name = f"Dollars a {plot_unit(estimate)} by gang, with intervals; the figures are in the table below"
    return drawing.picture(name, layout.width, bottom + _AXIS, parts)


def _end(usd: UsdSpan) -> Usd:
    """Return the end of the interval that is drawn: without an upper one, three times the expected amount."""
    return Usd(3 * usd.expected.nanos) if usd.high is None else usd.high


def _gang_name(row: GangEstimate) -> str:
    return f"{row.option} {MARKET_LETTERS[row.market.value]}"


def _interval(row: GangEstimate, usd: UsdSpan, scale: Scale, y: float, radius: float) -> str:
    """Return the interval as a bar with a dot at the expected amount; dashed where nothing bounds it."""
    start, at, end = (scale.at(amount.dollars()) for amount in (usd.low, usd.expected, _end(usd)))
    bar = drawing.rect(start, y - 3.5, max(end - start, 1.0), 7, "bar" if usd.high is not None else "out", rx=3.5)
    dot = drawing.dot(at, y, radius, "full")
    words = drawing.title(f"{_gang_name(row)}: ${dollars(usd)}")
    return drawing.element("g", f"{words}{bar}{dot}", cls=row.market.value, data_gang=_gang_name(row))
