"""Write the page of a back-test: charts as SVG and all figures, without external scripts, links or fonts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from router.backtest.scores import PolicyTimeline, PooledWindows, ShownWindow
from router.backtest.windows import WindowLayout
from router.render.axes import Scale, foot_tick, free_ticks, scale_around, tick_unit, value_grid
from router.render.backtest_text import ScoredCells, score_rows
from router.render.backtest_text import title as cell_title
from router.render.drawing import (
    SERIES,
    fit_text,
    key,
    line,
    mark,
    picture,
    polyline,
    rect,
    series_class,
    text,
    text_width,
    title,
)
from router.render.figures import tick_in
from router.render.pages import html_document, html_table
from router.spot.availability.calibration import Interval, bootstrap_interval
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import IDLE, ON_DEMAND
from router.spot.simulator.traces import Bools

_STYLE = """
body { max-width: 66em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em } h3 { font-size: 1em; margin: 1.6em 0 0.3em }
th, td { text-align: right; padding: 0.2em 0 0.2em 1.4em; border-bottom: 1px solid var(--line) }
td { font-variant-numeric: tabular-nums }
th:first-child, td:first-child, .left { text-align: left }
th:first-child, td:first-child { padding-left: 0 }
tr.reference td { color: var(--ink2) }
p.small { color: var(--ink2); font-size: 0.92em }
"""
_HEADER = ("policy", "mean USD", "of on-demand", "over optimum", "less", "difference, 90 %", "effective n", "missed")
_LEFT_COLUMNS = {"less", "difference, 90 %"}


def page(scored: ScoredCells, windows: WindowLayout, example: ShownWindow, runs: Sequence[PolicyTimeline]) -> str:
    """Return the page as HTML."""
    parts = []
    if svg := deadline_charts(scored):
        parts.append(f"<h2>Cost against deadline</h2>\n{svg}")
        parts.append('<p class="small">Mean over windows; bars: 90 % intervals, by resampling stretches of time.</p>')
    if svg := zone_charts(scored):
        parts.append(f"<h2>Cost against number of zones</h2>\n{svg}")
        parts.append('<p class="small">Mean over windows of one job.</p>')
    site = example.cell.sites[example.site]
    start_h = example.start * site.series.tick_s / HOUR_S
    parts.append(f"<h2>One run</h2>\n{runs_chart(example, runs)}")
    parts.append(
        f'<p class="small">{html.escape(cell_title(example.cell))}; {html.escape(site.name)}, from hour {start_h:.1f} '
        f"of the traces: a window in which policies differ more than in four of five.</p>"
    )
    parts.append("<h2>Figures</h2>")
    for pooled, scores in scored:
        rows = [
            (cells, "" if number < len(scores) else "reference")
            for number, cells in enumerate(score_rows(pooled, scores))
        ]
        stretches = np.unique(pooled.stretch).size
        parts.append(
            f'<h3>{html.escape(cell_title(pooled.cell))}</h3>\n<p class="small">{pooled.start.size} windows in '
            f"{stretches} stretches of time</p>\n{html_table(_HEADER, rows, _LEFT_COLUMNS)}"
        )
    note = (
        f"Windows begin every {windows.every_s / HOUR_S:.4g} h. Traces are cut into {windows.blocks} blocks of time; "
        "what is learned comes from the blocks before a window's. Optimum: the least that each window could have cost, "
        "found with its availability known. Difference: to the cheapest of the other policies on the same windows, as "
        "a share of on-demand. Effective n: number of independent windows as informative. Missed: windows past their "
        "deadline."
    )
    body = "\n".join(["<h1>Back-test</h1>", *parts, f'<p class="small">{note}</p>'])
    return html_document("Back-test", _STYLE, body)


_WIDTH = 1078
_SHAPES = ("circle", "square", "triangle", "diamond")
_MOST_FACETS = 6
_MOST_ZONES = 16  # strips of availability
_PLOT, _FACET = 200.0, 288.0
_LEFT, _BETWEEN = 62.0, 40.0
_LANE, _BAR = 27.0, 15.0
_STRIP = 14.0
_GUTTER = 250.0
_ZONE_COLOURS = 6
Facet = Sequence[tuple[float, PooledWindows]]  # along the axis


@dataclass(frozen=True, slots=True)
class _PolicyLine:
    """A policy's mean cost along an axis with its intervals; ``number`` chooses colour, dashes and mark."""

    name: str
    number: int
    points: tuple[tuple[float, Interval], ...]

    def draw(self, x: Scale, y: Scale, shift: float, *, intervals: bool) -> Iterator[str]:
        """Yield the bars of the intervals, the line and its marks, moved aside so that bars do not cover each other."""
        cls = series_class(self.number)
        at = [(x.at(value) + shift, y.at(cost.mean)) for value, cost in self.points]
        if intervals:
            for (along, _), (_, cost) in zip(at, self.points, strict=True):
                yield line(along, y.at(cost.low), along, y.at(cost.high), f"er {cls}")
        yield polyline(at, f"ln {cls}")
        for (along, up), (value, cost) in zip(at, self.points, strict=True):
            words = title(f"{self.name} at {value:.3g}: {cost.mean:,.3g}")
            yield mark(_SHAPES[self.number % len(_SHAPES)], along, up, 3.2, f"full c{self.number % SERIES}", words)

    @property
    def sample(self) -> tuple[str, str]:
        shape = mark(_SHAPES[self.number % len(_SHAPES)], 11, 0, 3.2, f"full c{self.number % SERIES}")
        return line(0, 0, 22, 0, f"ln {series_class(self.number)}") + shape, self.name


def deadline_charts(scored: ScoredCells) -> str:
    """Return one chart per job and place with several deadlines, or "" without any."""
    facets = ((f"{p.cell.job}, {p.cell.place}", _deadline_ratio(p), p) for p, _ in scored)
    return _draw_facets(facets, "deadline over work", shares=True)


def zone_charts(scored: ScoredCells) -> str:
    """Return one chart per job and deadline with several numbers of zones, or "" without any."""
    facets = ((f"{p.cell.job}, deadline {_deadline_ratio(p):.3g} x work", float(p.cell.zones), p) for p, _ in scored)
    return _draw_facets(facets, "zones that may be used", shares=False)


def _deadline_ratio(pooled: PooledWindows) -> float:
    return pooled.cell.task.deadline_s / pooled.cell.task.work_s


def _draw_facets(windows: Iterable[tuple[str, float, PooledWindows]], along: str, *, shares: bool) -> str:
    facets: dict[str, list[tuple[float, PooledWindows]]] = {}
    for name, at, pooled in windows:
        facets.setdefault(name, []).append((at, pooled))
    several = {name: points for name, points in facets.items() if len({at for at, _ in points}) > 1}
    shown = list(several.items())[:_MOST_FACETS]
    if not shown:
        return ""
    across = min(2, len(shown))
    width = (_WIDTH - _BETWEEN * (across - 1)) / across
    parts, samples = [], dict[str, str]()
    for number, (name, points) in enumerate(shown):
        left, top = number % across * (width + _BETWEEN), number // across * _FACET
        parts += [text(left, top + 14, fit_text(name, width, bold=True), "b")]
        parts += _draw_facet(sorted(points, key=lambda p: p[0]), left, width, top + 44, along, samples, shares=shares)
    bottom = math.ceil(len(shown) / across) * _FACET
    entries, end = key(((sample, words) for words, sample in samples.items()), 0, _WIDTH, bottom)
    chart = picture(f"Cost against {along}; the tables below hold the same figures", _WIDTH, end, [*parts, *entries])
    if len(shown) < len(several):
        chart += f'<p class="small">{len(shown)} of {len(several)} charts of cost against {along} are shown.</p>'
    return chart


def _draw_facet(
    points: Facet, left_x: float, width: float, top: float, along: str, samples: dict[str, str], *, shares: bool
) -> Iterator[str]:
    """Yield one line per policy and the optimum; ``samples`` gets their entries in the key."""
    lines = [
        _PolicyLine(name, number, tuple((at, _mean_cost(pooled, name, shares=shares)) for at, pooled in points))
        for number, name in enumerate(points[0][1].played)
    ]
    least = [(at, float((p.least_usd / (p.demand_usd if shares else 1.0)).mean())) for at, p in points]
    ends = [
        usd for each in lines for _, cost in each.points for usd in ((cost.low, cost.high) if shares else (cost.mean,))
    ]
    ends += [usd for _, usd in least]
    y, unit = scale_around(ends, top + _PLOT, top, 6)
    x = Scale(points[0][0], points[-1][0], left_x + _LEFT + 24, left_x + width - 24)
    yield text(left_x, top - 12, "share of on-demand" if shares else "dollars a window", "s")
    label = (lambda n: f"{n * unit:.3g}") if shares else (lambda n: tick_in(n, unit, "USD"))
    yield from value_grid(y, unit, left_x + _LEFT, left_x + width, label)
    yield line(left_x + _LEFT, top + _PLOT, left_x + width, top + _PLOT, "ax")
    ticks = [(x.at(at), f"{at:.3g}") for at in sorted({at for at, _ in points})]
    for at, words in free_ticks(ticks, str, left_x, left_x + width):
        yield from foot_tick(at, top + _PLOT, words)
    yield text(left_x + width, top + _PLOT + 34, along, "s e")
    for each in lines:
        yield from each.draw(x, y, 3.0 * (each.number - (len(lines) - 1) / 2), intervals=shares)
        sample, name = each.sample
        samples.setdefault(name, sample)
    yield polyline([(x.at(at), y.at(usd)) for at, usd in least], "ln met d3")
    samples["optimum"] = line(0, 0, 22, 0, "ln met d3")


def _mean_cost(pooled: PooledWindows, policy: str, *, shares: bool) -> Interval:
    usd = pooled.played[policy].usd / (pooled.demand_usd if shares else 1.0)
    return bootstrap_interval(usd, pooled.stretch)


def runs_chart(example: ShownWindow, timelines: Sequence[PolicyTimeline]) -> str:
    """Return one lane per policy: zone of spot, on-demand, or nothing; marks are launches.

    Below, one strip per zone shows when spot was available.
    """
    site = example.cell.sites[example.site]
    tick_h, end_h = site.series.tick_s / HOUR_S, example.cell.task.deadline_s / HOUR_S
    names = [zone.zone for zone in site.series.zones]
    used = sorted({int(zone) for timeline in timelines for zone in timeline.zone if zone >= 0})
    hues = {zone: f"c{number % _ZONE_COLOURS}" for number, zone in enumerate(used)}
    zones = used[:_MOST_ZONES] or [0]
    longest = max(end_h, *(timeline.kind.size * tick_h for timeline in timelines))
    scale = Scale(0.0, longest, _GUTTER, _WIDTH - 14.0)
    top = 26.0
    parts: list[str] = []
    for row, timeline in enumerate(timelines):
        parts += _draw_lane(timeline, top + row * _LANE, scale, tick_h, hues)
    strips = top + len(timelines) * _LANE + 14
    parts.append(text(0, strips, "when spot was available", "s"))
    for row, zone in enumerate(zones):
        y = strips + 8 + row * (_STRIP + 4)
        parts += [
            text(0, y + 11, fit_text(names[zone], _GUTTER - 10)),
            rect(scale.start, y, scale.end - scale.start, _STRIP, "trk"),
        ]
        for begin, after in _stretches(example.up[zone]):
            x1, x2 = scale.at(begin * tick_h), scale.at(after * tick_h)
            parts.append(rect(x1, y, x2 - x1, _STRIP, f"use {hues.get(zone, 'reserved')}"))
    base = strips + 12 + len(zones) * (_STRIP + 4)
    parts.append(line(scale.start, base, scale.end, base, "ax"))
    unit = tick_unit(longest, 12)
    ticks = [(scale.at(number * unit), f"{number * unit:g} h") for number in scale.ticks(unit)]
    for at, words in free_ticks(ticks, str, 0, _WIDTH):
        parts += foot_tick(at, base, words)
    parts += [line(scale.at(end_h), 16, scale.at(end_h), base, "mk"), text(scale.at(end_h), 12, "deadline", "b e")]
    hue_samples = [(rect(0, -6, 22, 12, f"full {hues[zone]}"), f"spot {names[zone]}") for zone in used[:8]]
    entries, end = key([*hue_samples, (rect(0, -6, 22, 12, "full inv"), "on demand")], 0, _WIDTH, base + 42)
    name = "One window as each policy plays it: colours are zones, triangles launches; below, when spot was available"
    return picture(name, _WIDTH, end, [*parts, *entries])


def _draw_lane(
    timeline: PolicyTimeline, y: float, scale: Scale, tick_h: float, hues: Mapping[int, str]
) -> Iterator[str]:
    cost = f"${timeline.usd:,.2f}"
    yield text(0, y + _BAR - 3, fit_text(timeline.policy, _GUTTER - text_width(cost) - 26))
    yield text(_GUTTER - 12, y + _BAR - 3, cost, "e")
    yield line(scale.start, y + _BAR, scale.at(timeline.kind.size * tick_h), y + _BAR, "ax")
    state = np.where(timeline.kind == ON_DEMAND, -2, np.where(timeline.kind == IDLE, -3, timeline.zone))
    edges = [0, *(np.flatnonzero(np.diff(state)) + 1).tolist(), state.size]
    for begin, after in pairwise(edges):
        zone = int(state[begin])
        if zone != -3:
            x1, x2 = scale.at(begin * tick_h), scale.at(after * tick_h)
            yield rect(x1, y, x2 - x1, _BAR, f"full {'inv' if zone == -2 else hues[zone]}")
    for tick in np.flatnonzero(timeline.fresh).tolist():
        yield mark("drop", scale.at(tick * tick_h), y - 6, 3, "full inv")


def _stretches(up: Bools) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], up, [False]]).astype(np.int8))).tolist()
    yield from zip(edges[::2], edges[1::2], strict=True)
