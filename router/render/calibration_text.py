"""Calibration of quotes as text, CSV and a page."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from router.files.csv_text import csv_text
from router.render import drawing
from router.render.axes import Scale, foot_tick, value_grid
from router.render.drawing import key, line, polyline, rect, series_class, text
from router.render.pages import html_document
from router.spot.availability.calibration import CURVE, LEVELS, CalibrationReport


def as_table(rows: Sequence[CalibrationReport]) -> str:
    """Return one line per kind of quote.

    It shows for each level the share that held with its 90 % interval, then the sharpness of the quotes.
    """
    size = max((len(row.name) for row in rows), default=0)
    head = f"{'':{size}}  {'of':6} {'n':>6} {'eff':>5}  "
    head += "".join(f"{f'{level:.0%} held':20}" for level in LEVELS) + f"{'width':>7}{'loss':>7}"
    return "\n".join([head, *(_line(row, size) for row in rows)])


def _line(row: CalibrationReport, size: int) -> str:
    effective = min(c.held.effective for c in row.covered)
    shares = "".join(
        f"{f'{c.held.mean:5.1%} [{c.held.low:3.0%},{c.held.high:4.0%}]' + ('' if c.is_in else ' !'):20}"
        for c in row.covered
    )
    return f"{row.name:{size}}  {row.what:6} {row.count:6,} {effective:5.0f}  {shares}{row.width:7.3f}{row.loss:7.4f}"


def as_csv(rows: Sequence[CalibrationReport]) -> str:
    """Return the same as CSV, one row per kind of quote and level."""
    header = ("name", "of", "quotes", "level", "held", "low", "high", "effective", "at_or_below", "width_80", "loss")
    lines = []
    for row in rows:
        for covered, plain in zip(row.covered, row.plain, strict=True):
            held = covered.held
            shares = (held.mean, held.low, held.high, held.effective, plain, row.width, row.loss)
            lines.append([row.name, row.what, row.count, covered.level, *(f"{share:.4f}" for share in shares)])
    return csv_text(header, lines)


_SIDE, _LEFT, _TOP, _GAP = 240, 52, 30, 90
_BARS: Final = 80

_STYLE = """
body { max-width: 72em }
svg { max-width: 860px }
pre { font-size: 12px; overflow-x: auto }
"""

_ABOUT = """<h1>Calibration of quotes</h1>
<p>A quote that said "at most this, with 80 %" should hold in 80 of 100 cases: a line on the diagonal. Below it quotes
promise too much, above it they are wider than they need be. Ties count in part. Bars: how often outcomes fell in each
tenth of their quotes; all should reach the dashed line. eff: number of independent outcomes as informative. Width: the
middle 80 % of the median quote; loss: continuous ranked probability score; both as shares of the mean outcome.</p>"""


def calibration_page(
    shown: Mapping[str, Sequence[CalibrationReport]], all_rows: Mapping[str, Sequence[CalibrationReport]]
) -> str:
    """Return the page.

    ``shown`` holds the rows of each diagram by data set, ``all_rows`` those of the tables.
    """
    parts = [f"<h2>On {html.escape(where)}</h2>\n{picture(rows)}" for where, rows in shown.items() if rows]
    parts += [
        f"<h2>Table: {html.escape(where)}</h2>\n<pre>{html.escape(as_table(rows))}</pre>"
        for where, rows in all_rows.items()
    ]
    return html_document("Calibration of quotes", _STYLE, "\n".join([_ABOUT, *parts]))


def picture(rows: Sequence[CalibrationReport]) -> str:
    """Return one diagram per quoted quantity, side by side, with histograms below and a legend."""
    whats = list(dict.fromkeys(row.what for row in rows))
    names = list(dict.fromkeys(row.name for row in rows))
    series = {name: series_class(number) for number, name in enumerate(names)}
    wide = len(whats) * (_SIDE + _GAP) + 200
    high = _TOP + _SIDE + 60 + len(names) * (_BARS + 26)
    drawn: list[str] = []
    for column, what in enumerate(whats):
        x, rows_of_quantity = _LEFT + column * (_SIDE + _GAP), [row for row in rows if row.what == what]
        drawn += _diagram(x, what, rows_of_quantity, series)
        for number, row in enumerate(rows_of_quantity):
            drawn += _bars(x, _TOP + _SIDE + 62 + number * (_BARS + 26), row, series[row.name])
    samples = [(line(0, 0, 22, 0, f"ln {series[name]}"), name) for name in names]
    entries, _ = key(samples, len(whats) * (_SIDE + _GAP) + 10, 0, _TOP + 14)
    return drawing.picture("Calibration of quotes", wide, high, [*drawn, *entries])


def _diagram(left_x: int, what: str, rows: Sequence[CalibrationReport], series: Mapping[str, str]) -> Iterator[str]:
    low = _TOP + _SIDE
    x, y = Scale(0, 1, left_x, left_x + _SIDE), Scale(0, 1, low, _TOP)
    yield from value_grid(y, 0.25, left_x, left_x + _SIDE, lambda number: f"{number / 4:.0%}")
    for number in x.ticks(0.25):
        yield from foot_tick(x.at(number / 4), low, f"{number / 4:.0%}")
    yield line(left_x, low, left_x + _SIDE, _TOP, "dash")
    yield text(left_x + _SIDE / 2, _TOP - 10, what, "b m")
    yield text(left_x + _SIDE / 2, low + 34, "promised", "s m")
    for row in rows:
        points = [(0.0, 0.0), *zip(CURVE, row.curve, strict=True), (1.0, 1.0)]
        yield polyline([(x.at(p), y.at(q)) for p, q in points], f"ln {series[row.name]}")
        for c in row.covered:
            yield line(x.at(c.level), y.at(c.held.high), x.at(c.level), y.at(c.held.low), f"er {series[row.name]}")


def _bars(x: int, y: int, row: CalibrationReport, colour: str) -> Iterator[str]:
    each, most = _SIDE / len(row.bars), max(0.2, *row.bars)
    scale = Scale(0, most, y + _BARS, y + 16)
    yield text(x, y + 10, row.name)
    for i, share in enumerate(row.bars):
        top = scale.at(share)
        yield rect(x + i * each + 1, top, each - 2, y + _BARS - top, f"use {colour}")
    even = scale.at(1 / len(row.bars))
    yield line(x, even, x + _SIDE, even, "dash")
