"""HTML page of quotes, and its charts, without external scripts, links or fonts. Pure functions."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from router.quotes.quote import KNEE_RULE, LEVELS, Quote
from router.render import svg
from router.render.quote_text import line, text
from router.render.svg import BLUE, GREY, ORANGE
from router.render.web_page import html_document

WIDTH, HEIGHT = 640, 260


_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 16, 44


_BARS = 24


_ROW = 22


_NAMES, _NAME = 250, 38  # width of row names, in pixels and in letters


@dataclass(frozen=True, slots=True)
class _Axes:
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x0) / (self.x1 - self.x0 or 1) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (value - self.y0) / (self.y1 - self.y0 or 1) * (HEIGHT - _TOP - _BOTTOM)


def cost_histogram(q: Quote) -> str:
    """Return the distribution of the cost between its 2.5 % and 97.5 % quantiles, or "" if one is infinite."""
    known = [level.dollars() for level in q.usd_levels if level is not None]
    if len(known) < len(LEVELS):
        return ""
    low, high = known[0], known[-1]
    if high - low < 0.01:
        low, high = low * 0.98, high * 1.02 + 0.01
    step = (high - low) / _BARS
    shares = [_below(known, low + (i + 1) * step) - _below(known, low + i * step) for i in range(_BARS)]
    axes = _Axes(low, high, 0.0, max(shares) * 1.08)
    bars = [
        f'<rect x="{axes.x(low + i * step):.1f}" y="{axes.y(s):.1f}" '
        f'width="{axes.x(low + step) - axes.x(low) - 1:.1f}" '
        f'height="{axes.y(0) - axes.y(s):.1f}" fill="{BLUE}"/>'
        for i, s in enumerate(shares)
    ]
    named = ((q.usd.mean, "expected"), (q.usd.p90, "9 of 10"))
    marks = [_mark(axes, usd.dollars(), label) for usd, label in named if usd]
    parts = [*bars, *marks, *_x_ticks(axes, "${:,.0f}"), _x_label("dollars")]
    return svg.picture("Distribution of the cost", WIDTH, HEIGHT, parts)


def price_curve(q: Quote) -> str:
    """Return cost against deadline, with the knee and the requested deadline marked."""
    points = [
        (p, usd.dollars(), p.p90.dollars())
        for p in q.curve
        if (usd := p.mean if q.has_means else p.p50) is not None and p.p90 is not None
    ]
    if len(points) < 2:
        return ""
    axes = _Axes(points[0][0].hours, points[-1][0].hours, 0.0, max(max(cost, high) for _, cost, high in points) * 1.1)
    parts = [
        _line(axes, [(p.hours, high) for p, _, high in points], ORANGE),
        _line(axes, [(p.hours, cost) for p, cost, _ in points], BLUE),
    ]
    for p, cost, _ in points:
        x, y = axes.x(p.hours), axes.y(cost)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{BLUE}"/>')
        if p.knee:
            parts.append(_label(x, y, "knee", ORANGE))
        if p.deadline == q.deadline:
            parts.append(_label(x, y, "asked", "#000000"))
    key = (
        f'<text x="{WIDTH - _RIGHT}" y="{_TOP + 10}" text-anchor="end"><tspan fill="{BLUE}">{_statistic(q)}</tspan> '
        f'<tspan fill="{ORANGE}">9 of 10</tspan></text>'
    )
    parts += [key, *_x_ticks(axes, "{:,.0f} h"), *_y_ticks(axes), _x_label("hours to the deadline")]
    return svg.picture("Cost against deadline", WIDTH, HEIGHT, parts)


def timeline(q: Quote) -> str:
    """Return the places of one typical run over time."""
    if not q.run:
        return ""
    rows = list(dict.fromkeys((leg.where, leg.market) for leg in q.run))
    begin, end = q.run[0].start, q.run[-1].end
    hours = max((end - begin).total_seconds() / 3600, 1e-9)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    scale = (WIDTH - _NAMES - _RIGHT) / hours
    parts = []
    for i, (where, market) in enumerate(rows):
        name = f"{where} {market.replace('_', ' ')}" if where else "waits"
        parts.append(svg.text(4, _TOP + _ROW * i + 15, name[-_NAME:]))
    for leg in q.run:
        row = rows.index((leg.where, leg.market))
        x = _NAMES + (leg.start - begin).total_seconds() / 3600 * scale
        width = max((leg.end - leg.start).total_seconds() / 3600 * scale, 1.0)
        colour = GREY if not leg.where else BLUE if leg.market == "spot" else ORANGE
        parts.append(
            f'<rect x="{x:.1f}" y="{_TOP + _ROW * row + 4}" width="{width:.1f}" height="{_ROW - 8}" fill="{colour}"/>'
        )
    base = _TOP + _ROW * len(rows) + 14
    parts += [svg.text(_NAMES + h * scale, base, f"{h:,.0f} h", "middle") for h in _round_steps(0, hours)]
    return svg.picture("One typical run", WIDTH, height, parts)


def _below(levels: Sequence[float], value: float) -> float:
    """Return the share below a value, linear between the levels."""
    if value <= levels[0]:
        return LEVELS[0] if value == levels[0] else 0.0
    for i in range(1, len(levels)):
        if value <= levels[i]:
            width = levels[i] - levels[i - 1]
            part = 1.0 if width <= 0 else (value - levels[i - 1]) / width
            return LEVELS[i - 1] + part * (LEVELS[i] - LEVELS[i - 1])
    return LEVELS[-1]


def _statistic(q: Quote) -> str:
    return "expected" if q.has_means else "median"


def _line(axes: _Axes, points: Sequence[tuple[float, float]], colour: str) -> str:
    at = " ".join(f"{axes.x(hours):.1f},{axes.y(usd):.1f}" for hours, usd in points)
    return f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def _label(x: float, y: float, words: str, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="{colour}" stroke-width="2"/>' + svg.text(
        x, y + (20 if words == "knee" else -10), words, "middle", fill=colour
    )


def _mark(axes: _Axes, value: float, words: str) -> str:
    x = axes.x(min(max(value, axes.x0), axes.x1))
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="{ORANGE}" '
        f'stroke-dasharray="4 3"/>' + svg.text(x + 3, _TOP + 10, words, fill=ORANGE)
    )


def _round_steps(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two values, about ``about`` of them."""
    rough = max((high - low) / about, 1e-9)
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _x_ticks(axes: _Axes, form: str) -> list[str]:
    y = HEIGHT - _BOTTOM
    return [
        f'<line x1="{axes.x(v):.1f}" x2="{axes.x(v):.1f}" y1="{y}" y2="{y + 4}" stroke="#222"/>'
        + svg.text(axes.x(v), y + 16, form.format(v), "middle")
        for v in _round_steps(axes.x0, axes.x1)
    ]


def _y_ticks(axes: _Axes) -> list[str]:
    return [
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{axes.y(v):.1f}" y2="{axes.y(v):.1f}" stroke="#ddd"/>'
        + svg.text(_LEFT - 6, axes.y(v) + 4, f"${v:,.0f}", "end")
        for v in _round_steps(axes.y0, axes.y1)
    ]


def _x_label(words: str) -> str:
    return svg.text((WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 8, words, "middle")


_STYLE = """
body { max-width: 60em }
svg { width: 100%; max-width: 44em }
pre { font-size: 13px; overflow-x: auto; background: #f6f5f2; padding: 1em }
@media print { pre { white-space: pre-wrap; font-size: 8pt } h2, svg { break-inside: avoid; break-after: avoid } }
"""


def page(quotes: Sequence[tuple[str, Quote]]) -> str:
    """Return a page with one section per quote, with its id."""
    title = "Quote" if len(quotes) == 1 else f"{len(quotes)} quotes"
    return html_document(title, _STYLE, "\n".join(_section(name, q) for name, q in quotes))


def _section(name: str, q: Quote) -> str:
    pictures = [
        (
            "How the cost is spread",
            cost_histogram(q),
            f"{q.draws} simulated scenarios; the ends are the 2.5 % and 97.5 % points.",
        ),
        ("What other deadlines cost", price_curve(q), f"The knee is {KNEE_RULE}."),
        ("One typical run", timeline(q), "The simulated scenario whose cost is nearest to the median. Blue is spot."),
    ]
    drawn = "\n".join(f"<h3>{t}</h3>\n{svg}\n<p>{html.escape(words)}</p>" for t, svg, words in pictures if svg)
    return f"""<h2>{html.escape(q.job)}</h2>
<p>{html.escape(line(q, name))}</p>
{drawn}
<pre>{html.escape(text(q, name))}</pre>"""
