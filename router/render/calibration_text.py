"""Calibration of quotes as text, CSV and a page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final

from router.files.csv_text import csv_text
from router.render import svg
from router.render.web_page import html_document
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
    colour = {name: svg.COLOURS[i % len(svg.COLOURS)] for i, name in enumerate(names)}
    wide = len(whats) * (_SIDE + _GAP) + 200
    high = _TOP + _SIDE + 60 + len(names) * (_BARS + 26)
    drawn = []
    for column, what in enumerate(whats):
        rows_of_quantity = [row for row in rows if row.what == what]
        drawn.append(_diagram(_LEFT + column * (_SIDE + _GAP), what, rows_of_quantity, colour))
        for line, row in enumerate(rows_of_quantity):
            drawn.append(_bars(_LEFT + column * (_SIDE + _GAP), _TOP + _SIDE + 62 + line * (_BARS + 26), row, colour))
    x = len(whats) * (_SIDE + _GAP) + 10
    for i, name in enumerate(names):
        y = _TOP + 14 + 20 * i
        drawn.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour[name]}" stroke-width="2.5"/>')
        drawn.append(svg.text(x + 28, y + 4, name))
    return svg.picture("Calibration of quotes", wide, high, drawn, alone=True)


def _diagram(x: int, what: str, rows: Sequence[CalibrationReport], colour: Mapping[str, str]) -> str:
    low = _TOP + _SIDE
    parts = [f'<rect x="{x}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999"/>']
    parts.append(f'<line x1="{x}" y1="{low}" x2="{x + _SIDE}" y2="{_TOP}" stroke="#999" stroke-dasharray="5 4"/>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(svg.text(x + share * _SIDE, low + 16, f"{share:.0%}", "middle"))
        parts.append(svg.text(x - 6, low - share * _SIDE + 4, f"{share:.0%}", "end"))
    parts.append(svg.text(x + _SIDE / 2, _TOP - 10, what, "middle", bold=True))
    parts.append(svg.text(x + _SIDE / 2, low + 34, "promised", "middle"))
    for row in rows:
        points = [(0.0, 0.0), *zip(CURVE, row.curve, strict=True), (1.0, 1.0)]
        path = " ".join(f"{x + p * _SIDE:.1f},{low - q * _SIDE:.1f}" for p, q in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour[row.name]}" stroke-width="2"/>')
        for c in row.covered:
            at, top, end = x + c.level * _SIDE, low - c.held.high * _SIDE, low - c.held.low * _SIDE
            style = f'stroke="{colour[row.name]}" stroke-opacity="0.5"'
            parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top:.1f}" y2="{end:.1f}" {style}/>')
    return "\n".join(parts)


def _bars(x: int, y: int, row: CalibrationReport, colour: Mapping[str, str]) -> str:
    each, most = _SIDE / len(row.bars), max(0.2, *row.bars)
    parts = [svg.text(x, y + 10, row.name)]
    for i, share in enumerate(row.bars):
        high = share / most * (_BARS - 16)
        place = f'x="{x + i * each + 1:.1f}" y="{y + _BARS - high:.1f}" width="{each - 2:.1f}" height="{high:.1f}"'
        parts.append(f'<rect {place} fill="{colour[row.name]}" fill-opacity="0.6"/>')
    even = y + _BARS - 1 / len(row.bars) / most * (_BARS - 16)
    parts.append(
        f'<line x1="{x}" x2="{x + _SIDE}" y1="{even:.1f}" y2="{even:.1f}" stroke="#444" stroke-dasharray="4 3"/>'
    )
    return "\n".join(parts)
