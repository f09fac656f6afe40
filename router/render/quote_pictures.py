"""Draw the pictures of a quote as SVG: cost by deadline, the spread as dots, a run, bars of tables. Pure functions.

Every figure in them stands in a table or a sentence of the page too. Points and dots carry theirs as data attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from pricing.money import Usd
from router.quotes.quote import LEVELS, Driver, Other, Point, Quote
from router.render import drawing
from router.render.axes import (
    ChartLayout,
    LaneLayout,
    Scale,
    TimeScale,
    foot_tick,
    free_ticks,
    round_minutes,
    tick_unit,
    time_words,
    value_grid,
)
from router.render.drawing import LabelBox, dot, element, line, picture, polygon, polyline, rect, text, text_width
from router.render.figures import MARKET_LETTERS, cents, clock, day, day_clock, hours, money, stamp, tick_in
from router.render.quote_view import DOTS, QuoteView, cost_words, roles_of

_HOUR = timedelta(hours=1)
_LEAST_TICK_MINUTES = 15
_DASHED = "stroke-width:1.25;stroke-dasharray:5 3"
_NINE_OF_TEN = 0.9
_LABEL_DROPS = (-15.0, -42.0, 12.0, -70.0, 36.0, -100.0, 60.0, -130.0, 90.0, 120.0, 150.0)
_SURE_WIDTH = 0.005  # dollars; a spread that is narrower is one amount

CURVES = (
    ChartLayout(1078, 52, 40, 292, 84),
    ChartLayout(692, 52, 30, 292, 78),
    ChartLayout(340, 42, 24, 264, 52),
)
SPREADS = ((508, 194.0, 8.6), (508, 194.0, 8.6), (340, 178.0, 7.4))
# With the radius of the dots.
STRIPS = (
    (LaneLayout(1078, 104, 70), 5.7),
    (LaneLayout(692, 104, 62), 5.0),
    (LaneLayout(340, 0, 48, narrow=True), 3.9),
)


@dataclass(frozen=True, slots=True)
class _Frame:
    layout: ChartLayout
    hours: Scale
    usd: Scale

    @classmethod
    def of(cls, points: Sequence[Point], layout: ChartLayout, most_usd: float) -> _Frame:
        """Return scales that hold the points, with room for labels around them."""
        first, last = points[0].hours, points[-1].hours
        room = (last - first) * 0.05
        hours = Scale(max(0.0, first - room), last + room, layout.left_margin, layout.width - layout.right_margin)
        return cls(layout, hours, Scale(0.0, most_usd or 1.0, layout.height - 40, 26.0))

    @property
    def bottom(self) -> float:
        return self.usd.start

    def at(self, point: Point) -> tuple[float, float]:
        return self.hours.at(point.hours), self.usd.at(_usd(point.p50))


def draw_curve(q: Quote, layout: ChartLayout) -> str:
    """Return the price by deadline, or "" where fewer than two points have an end.

    The median is solid, 9 of 10 dashed, with a band between them; the tightest deadline, the knee and the one asked for
    are labelled.
    """
    points = [p for p in q.curve if p.p50 is not None]
    if len(points) < 2:
        return ""
    most = max(max(_usd(p.p50), _usd(p.p90)) for p in points)
    step = tick_unit(most, 5)
    frame = _Frame.of(points, layout, math.ceil(most / step - 1e-9) * step)
    end = layout.width - layout.right_margin
    grid = value_grid(frame.usd, step, layout.left_margin, end, lambda number: tick_in(number, step, "USD"))
    parts = [*grid, text(layout.left_margin, 12, "Cost by deadline", "s")]
    parts += [*_hour_axis(frame, q.start), *_lines(q.curve, frame)]
    labels = _CurveLabels(q, frame)
    parts += labels.draw([p for p in points if roles_of(q, p)])
    name = (
        f"Cost by deadline: median and 9 of 10 of the cost for {len(q.curve)} deadlines. "
        "The table below holds the same figures."
    )
    return picture(name, layout.width, layout.height, parts)


def _usd(amount: Usd | None) -> float:
    return 0.0 if amount is None else amount.dollars()


def _hour_axis(frame: _Frame, start: datetime) -> Iterator[str]:
    """Yield ticks in hours after the start, with the clock beneath each, or each second one where they are close."""
    scale = frame.hours
    pixels = (scale.end - scale.start) / ((scale.high - scale.low) or 1.0)
    step = max(round_minutes(pixels / 60, frame.layout.spacing), _LEAST_TICK_MINUTES) / 60
    dates = scale.high > 6 * 24
    every = 1 if step * pixels >= text_width("Mon 00:00") + 12 else 2
    for i in scale.ticks(step):
        x = scale.at(i * step)
        moment = start + i * step * _HOUR
        yield from foot_tick(x, frame.bottom, f"+{i * step:g} h")
        if i % every == 0:
            yield text(x, frame.bottom + 32, day(moment) if dates else f"{moment:%a} {clock(moment)}", "s m")


def _lines(curve: Sequence[Point], frame: _Frame) -> list[str]:
    """Return the band, both lines and the points; a line is broken where an amount has no end."""
    parts = []
    for stretch in _stretches([p if p.p50 is not None and p.p90 is not None else None for p in curve]):
        upper = [(frame.hours.at(p.hours), frame.usd.at(_usd(p.p90))) for p in stretch]
        lower = [frame.at(p) for p in stretch]
        parts += [polygon([*upper, *reversed(lower)], "band inv"), polyline(upper, "ln inv", style=_DASHED)]
    for stretch in _stretches([p if p.p50 is not None else None for p in curve]):
        parts.append(polyline([frame.at(p) for p in stretch], "ln inv"))
        for p in stretch:
            x, y = frame.at(p)
            ends = f"median {cost_words(p.p50)}, 9 of 10 {cost_words(p.p90)}"
            words = drawing.title(f"+{p.hours:.1f} h, {day_clock(p.deadline)}: {ends}")
            data = {"data_deadline": stamp(p.deadline), "data_p50": _cents(p.p50), "data_p90": _cents(p.p90)}
            parts.append(dot(x, y, 3.2, "full inv", words, **data))
    return parts


def _cents(usd: Usd | None) -> str:
    return "" if usd is None else cents(usd)


def _stretches(points: Sequence[Point | None]) -> Iterator[list[Point]]:
    run: list[Point] = []
    for p in points:
        if p is not None:
            run.append(p)
        elif run:
            yield run
            run = []
    if run:
        yield run


class _CurveLabels:
    """Places labels where they meet neither each other nor, as far as there is room, the lines."""

    def __init__(self, q: Quote, frame: _Frame) -> None:
        self.q, self.frame = q, frame
        self.taken: list[LabelBox] = []
        self.inked = [each for which in ("p50", "p90") for each in self._inked(which)]

    def _inked(self, which: str) -> Iterator[tuple[float, float]]:
        known = [(p.hours, usd) for p in self.q.curve if (usd := getattr(p, which)) is not None]
        at = [(self.frame.hours.at(h), self.frame.usd.at(usd.dollars())) for h, usd in known]
        for (x1, y1), (x2, y2) in pairwise(at):
            steps = max(1, round(math.hypot(x2 - x1, y2 - y1) / 4))
            for i in range(steps + 1):
                yield x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps

    def draw(self, points: Sequence[Point]) -> list[str]:
        """Return rings, the drop line of the deadline asked for, and the labels, that one first."""
        parts = []
        for p in points:
            x, y = self.frame.at(p)
            roles = roles_of(self.q, p)
            if "asked" in roles:
                parts.append(line(x, y + 7, x, self.frame.bottom, "dash"))
                self.inked += [(x, y + i) for i in range(8, int(self.frame.bottom - y), 4)]
            if roles != ("tightest",):
                parts.append(dot(x, y, 7.0, "hol inv"))
            self.taken.append(LabelBox(x - 8, y - 8, x + 8, y + 8))
        order = ("asked", "knee", "tightest")
        for p in sorted(points, key=lambda p: min(order.index(role) for role in roles_of(self.q, p))):
            parts += self._label(p)
        return [
            *parts,
            *self._line_name("p90", "9 of 10 cost less", -8.0),
            *self._line_name("p50", "half cost less", 18.0),
        ]

    def _line_name(self, which: str, words: str, dy: float) -> list[str]:
        """Return the name of a line beside it, or nothing where there is no room."""
        width = text_width(words)
        middle = self.frame.layout.width / 2
        for x, y in sorted(list(self._inked(which))[::6], key=lambda at: abs(at[0] - middle)):
            box = LabelBox(x - width / 2, y + dy - 11, x + width / 2, y + dy + 3)
            if self._cost(box, x, y) < 12:
                self.taken.append(box)
                return [text(x, y + dy, words, "halo s m")]
        return []

    def _label(self, p: Point) -> list[str]:
        roles = roles_of(self.q, p)
        first = f"{', '.join(roles)} +{p.hours:.1f} h: {cost_words(p.p50)}"
        second = f"9 of 10 {cost_words(p.p90)}"
        x, y = self.frame.at(p)
        width = max(text_width(first, bold=True), text_width(second))
        options = [
            (LabelBox(left, y + dy, left + width, y + dy + 30), anchor)
            for dy in _LABEL_DROPS
            for left, anchor in ((x + 14, ""), (x - 14 - width, "e"), (x - width / 2, "m"))
        ]
        box, anchor = min(options, key=lambda option: self._cost(option[0], x, y))
        self.taken.append(box)
        at = {"": box.left_x, "e": box.right_x, "m": (box.left_x + box.right_x) / 2}[anchor]
        near = box.nearest(x, y)
        far = math.hypot(near[0] - x, near[1] - y)
        lead = []
        if far > 18:
            share = 8 / far
            lead = [line(x + (near[0] - x) * share, y + (near[1] - y) * share, *near, "mkl")]
        return [
            *lead,
            text(at, box.top_y + 12, first, f"halo b {anchor}".strip()),
            text(at, box.top_y + 27, second, f"halo s {anchor}".strip()),
        ]

    def _cost(self, box: LabelBox, x: float, y: float) -> float:
        outside = (
            max(0.0, self.frame.layout.left_margin + 4 - box.left_x)
            + max(0.0, box.right_x - self.frame.layout.width)
            + max(0.0, 16 - box.top_y)
            + max(0.0, box.bottom_y - self.frame.bottom + 2)
        )
        met = sum(box.meets(other) for other in self.taken)
        crossed = sum(box.holds(*at) for at in self.inked)
        near = box.nearest(x, y)
        return 200 * outside + 400 * met + 12 * crossed + math.hypot(near[0] - x, near[1] - y)


def _stack(positions: Sequence[float], left_x: float, radius: float) -> list[tuple[float, int]]:
    """Return columns and levels of dots: those that lie within the width of one stand on each other."""
    wide = 2.15 * radius
    heights: dict[int, int] = {}
    dots = []
    for x in positions:
        column = math.floor((x - left_x) / wide)
        level = heights.get(column, 0)
        heights[column] = level + 1
        dots.append((left_x + (column + 0.5) * wide, level))
    return dots


def _fit_dots(
    positions: Sequence[float], left_x: float, radius: float, room: float
) -> tuple[float, list[tuple[float, int]]]:
    """Return a radius, the given one or less, at which the highest stack keeps to its room, and the places."""
    while True:
        dots = _stack(positions, left_x, radius)
        if radius <= 2.5 or (max(level for _, level in dots) + 1) * 2.2 * radius <= room:
            return radius, dots
        radius *= 0.94


def draw_spread(view: QuoteView, size: tuple[int, float, float]) -> str:
    """Return the cost as 20 dots, each one run in 20, filled above 9 of 10; "" where it is one amount or none."""
    q, (width, height, radius) = view.quote, size
    known = [(usd, LEVELS[i]) for i, usd in zip(DOTS, view.cost_dots, strict=True) if usd is not None]
    if not known or known[-1][0].dollars() - known[0][0].dollars() < _SURE_WIDTH:
        return ""
    low, high = known[0][0].dollars(), known[-1][0].dollars()
    left, right, base = 10.0, width - 10.0, height - 22
    pad = 1.2 * radius

    scale = Scale(low, high, left + pad, right - pad)
    radius, places = _fit_dots([scale.at(usd.dollars()) for usd, _ in known], left, radius, base - 42)
    step = tick_unit(high - low, 6)
    ticks = [(scale.at(i * step), tick_in(i, step, "USD")) for i in scale.ticks(step)]
    parts = [line(left, base, right, base, "ax")]
    for at, said in free_ticks(ticks, str, 0.0, float(width)):
        parts += foot_tick(at, base, said)
    for usd, words, y in ((q.usd.p50, "half below", 13.0), (q.usd.p90, "9 of 10 below", 31.0)):
        if usd is None:
            continue
        at, said = min(max(scale.at(usd.dollars()), left), right), f"{words} {money(usd)}"
        fits = at + 6 + text_width(said, bold=True) <= width
        parts.append(line(at, y - 9, at, base, "dash"))
        parts.append(text(at + 6 if fits else at - 6, y, said, "halo b" if fits else "halo b e"))
    for (usd, level), (at, row) in zip(known, places, strict=True):
        cls = "full inv" if level > _NINE_OF_TEN else "bar inv"
        y = base - radius * (1.1 + 2.2 * row)
        parts.append(dot(at, y, radius, cls, drawing.title(money(usd)), data_usd=cents(usd)))
    name = "Spread of the cost as 20 dots, each 1 run in 20. The figures stand below it."
    return picture(name, width, height, parts)


def draw_run(view: QuoteView, size: tuple[LaneLayout, float]) -> str:
    """Return the typical run as bars, and below it on the same axis when 20 such runs end; "" without a run."""
    q, (layout, most_radius) = view.quote, size
    if not q.run:
        return ""
    ends = [at for at in view.end_dots if at is not None]
    last = max([q.deadline, q.run[-1].end, *ends])
    left, right = layout.gutter or 2.0, layout.width - 14.0
    scale = TimeScale(q.start, last, last, left, right)
    top = 38.0 if layout.narrow else 26.0
    radius, places = _fit_dots([scale.at(at) for at in ends], left, most_radius, 96) if ends else (1.0, [])
    highest = max((level for _, level in places), default=0) + 1
    base = top + 24 + (34 if layout.narrow else 20) + max(highest * 2.2 * radius, 26)
    parts = [*_run_names(layout, top, base - max(highest * 2.2 * radius, 26)), *_run_bars(q, scale, top, layout)]
    for at, (x, level) in zip(ends, places, strict=True):
        y = base - radius * (1.1 + 2.2 * level)
        parts.append(dot(x, y, radius, "bar inv", drawing.title(day_clock(at)), data_end=stamp(at)))
    parts += [*_run_axis(q, scale, base, layout), *_run_deadline(q, scale, base, layout)]
    name = "One typical run, and when 20 such runs end. The table below holds the same figures."
    return picture(name, layout.width, base + 22, parts)


def _run_names(layout: LaneLayout, top: float, dots: float) -> list[str]:
    if layout.narrow:
        return [text(0, top - 6, "one typical run", "b"), text(0, dots - 8, "20 such runs end", "b")]
    return [text(0, top + 17, "one run", "b"), text(0, dots + 10, "20 such runs", "b"), text(0, dots + 25, "end", "s")]


def _run_bars(q: Quote, scale: TimeScale, top: float, layout: LaneLayout) -> Iterator[str]:
    """Yield a bar for each stretch, lettered by market, and a dotted line for each wait."""
    for leg in q.run:
        x1, x2 = scale.at(leg.start), scale.at(leg.end)
        long = hours(leg.end - leg.start)
        if leg.where:
            letter = MARKET_LETTERS.get(leg.market, "")
            said = next((w for w in (f"{letter} {long}", letter) if text_width(w) + 4 <= x2 - x1), "")
            place = f"{leg.where} {leg.market.replace('_', '-')}, {long}"
            data = {"data_start": stamp(leg.start), "data_end": stamp(leg.end), "data_market": leg.market}
            width = max(x2 - x1 - 1.5, 2.0)
            yield rect(x1 + 0.75, top, width, 24, f"bar {leg.market}", drawing.title(place), rx=3, **data)
            if said:
                yield text((x1 + x2) / 2, top + 16, said, "m")
        else:
            yield line(x1 + 1, top + 12, x2 - 1, top + 12, "dash")
            said = next((w for w in (f"waits {long}", "waits") if text_width(w) + 4 <= x2 - x1), "")
            if said:
                yield text((x1 + x2) / 2, top + 8, said, "s m")
    end = scale.at(q.run[-1].end)
    done = f"done {clock(q.run[-1].end)}"
    if end + 8 + text_width(done) <= scale.at(q.deadline) - 4:
        yield text(end + 8, top + 16, done, "s")
    elif layout.narrow:
        yield text(end, top + 38, done, "s e")


def _run_axis(q: Quote, scale: TimeScale, base: float, layout: LaneLayout) -> Iterator[str]:
    yield line(scale.left_x, base, scale.right_x, base, "ax")
    yield from foot_tick(scale.left_x, base)
    first = day_clock(q.start)
    taken = scale.left_x
    if not layout.narrow:
        yield text(scale.left_x, base + 17, first, "s m")
        taken += text_width(first) / 2 + 6
    else:
        yield text(0, base + 17, first, "s")
        taken += text_width(first) + 6
    for x, moment in free_ticks(scale.ticks(layout.spacing), time_words, taken, layout.width):
        yield from foot_tick(x, base, time_words(moment))


def _run_deadline(q: Quote, scale: TimeScale, base: float, layout: LaneLayout) -> list[str]:
    x, words = scale.at(q.deadline), f"due {day_clock(q.deadline)}"
    fits = x + text_width(words) / 2 <= layout.width and x - text_width(words) / 2 >= scale.left_x
    at, cls = (x, "b m") if fits else (min(x + 12, float(layout.width)), "b e")
    return [line(x, 18, x, base, "mk"), text(at, 12, words, cls)]


def draw_alternative(row: Other, max_usd: Usd) -> str:
    """Return the bar of an alternative from $0 to ``max_usd``: a dot at its median, a line to 9 of 10."""
    parts = []
    if row.p50 is not None:
        end = "98%" if row.p90 is None else _along(row.p90, max_usd)
        parts.append(
            element("line", x1=_along(row.p50, max_usd), x2=end, y1=7, y2=7, cls="dash" if row.p90 is None else "mk")
        )
        if row.p90 is not None:
            parts.append(element("line", x1=end, x2=end, y1=2, y2=12, cls="mk"))
        parts.append(element("circle", cx=_along(row.p50, max_usd), cy=7, r=4.5, cls="full inv"))
    axis = element("line", x1="2%", x2="2%", y1=0, y2=14, cls="ax")
    return element("svg", axis + "".join(parts), height=14, width="100%", aria_hidden="true")


def _along(usd: Usd, max_usd: Usd) -> str:
    return f"{2 + 96 * usd.nanos / max(max_usd.nanos, 1):.2f}%"


def most_shown(rows: Sequence[Other]) -> Usd:
    """Return the largest amount of rows, the end of their common axis."""
    return max((usd for row in rows for usd in (row.p50, row.p90) if usd is not None), default=Usd(0))


def draw_share(driver: Driver) -> str:
    """Return the bar of a part of the cost; start-ups and lost work are waste and hatched."""
    kinds = (("start-ups", "wh"), ("spot", "bar spot"), ("demand", "bar on_demand"))
    cls = next((cls for word, cls in kinds if word in driver.what), "full met")
    track = element("rect", width="100%", height=12, y=1, rx=2, style="fill:var(--grid)")
    share = element("rect", width=f"{min(max(driver.share, 0.0), 1.0):.2%}", height=12, y=1, rx=2, cls=cls)
    return element("svg", track + share, height=14, width="100%", aria_hidden="true")
