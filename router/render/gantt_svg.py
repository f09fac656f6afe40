"""Draw the picture of a plan as SVG in a given width: lanes, labels that never meet, ceilings. Pure functions."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter

from pricing.units import format_count
from router.planning.document.plan_usage import UseStep
from router.render import drawing
from router.render.axes import LaneLayout, TimeScale, free_ticks
from router.render.drawing import fit_text, line, rect, text, text_width
from router.render.figures import MARKET_WORDS, clock, day, day_clock, money, stamp
from router.render.gantt import Bar, Ceiling, Folded, Gantt, JobRun, Row
from router.render.tables import clip_text

_TOP = 40.0
_LANE = 23.0
_BAR = 16.5
_NARROWEST = 3.0
_STRIP = 13.0
_NOTE = 15.0
_LONGEST_NAME = 28
_APART = 10.0  # between what shares a lane
GANTTS = (LaneLayout(1078, 150, 66), LaneLayout(692, 150, 62), LaneLayout(340, 0, 46, narrow=True))


@dataclass(frozen=True, slots=True)
class _Label:
    """Words beside or in a bar; ``x`` is where they begin, or end for ``anchor`` e."""

    words: str
    x: float
    anchor: str
    left_x: float
    right_x: float
    halo: bool = True


@dataclass(frozen=True, slots=True)
class _PlacedRun:
    run: JobRun
    label: _Label
    left_x: float
    right_x: float


def draw_gantt(gantt: Gantt, layout: LaneLayout, job_url: Callable[[str], str] | None = None) -> str:
    """Return the picture as an SVG element. Each bar has data attributes with its job, place, market and times.

    With ``job_url`` the bars of a job lead there, for a pointer; for a keyboard the table of jobs does.
    """
    scale = TimeScale(gantt.plan.horizon_start, gantt.plan.horizon_end, gantt.end, layout.gutter, float(layout.width))
    y, body = _TOP, []
    for row in gantt.rows:
        parts, y = _draw_row(row, scale, layout, y, job_url)
        body += parts
    if gantt.folded is not None:
        parts, y = _draw_folded(gantt.folded, scale, layout, y)
        body += parts
    name = (
        "Gantt chart of the plan: rows are clouds and regions, bars are jobs coloured and lettered by market. "
        "The table of jobs below holds the same figures."
    )
    parts = [*_draw_axis(scale, layout, y), *body]
    return drawing.picture(name, layout.width, y + 2, parts, has_links=job_url is not None)


def _draw_axis(scale: TimeScale, layout: LaneLayout, bottom: float) -> list[str]:
    """Return the lines and words of both scales: the moment of the plan, round times, the horizon."""
    top = _TOP - 6
    parts = [line(scale.left_x, top, scale.left_x, bottom, "mk")]
    outlook = scale.has_outlook
    ends = "orders" if layout.narrow else f"orders end {clock(scale.horizon)}"
    free_from = scale.left_x + 34
    if layout.narrow:
        parts.append(text(scale.left_x, 12, f"plan {clock(scale.start)}", "b"))
        free_from = scale.left_x + 70
    else:
        parts += [text(scale.left_x, 12, "plan", "b"), text(scale.left_x, 28, clock(scale.start), "s")]
    free_to = scale.horizon_at - text_width(ends) - 10
    taken = scale.left_x if layout.narrow else scale.left_x + 36
    middle = (scale.horizon_at + scale.outlook_at) / 2
    ticks = [(x, _tick_words(moment, scale, layout)) for x, moment in scale.ticks(layout.spacing)]
    for x, (name, date) in free_ticks(ticks, itemgetter(0), taken, layout.width, middle):
        parts += [line(x, top, x, bottom, "g"), text(x, 28, name, "s m")]
        if date and free_from < x - text_width(date) / 2 and x + text_width(date) / 2 < free_to:
            parts.append(text(x, 12, date, "s m"))
    if outlook:
        words = "outlook" if layout.narrow else f"outlook to {day(scale.end)}"
        parts += [
            line(middle, 6, middle, bottom, "hz"),
            text(middle - 5, 12, ends, "s e"),
            text(middle + 5, 12, words, "s"),
        ]
    return parts


def _tick_words(moment: datetime, scale: TimeScale, layout: LaneLayout) -> tuple[str, str]:
    """Return the words of a tick, and the date above it where a day begins among hours."""
    midnight = clock(moment) == "00:00"
    if moment >= scale.horizon or (scale.horizon - scale.start > timedelta(days=4) and midnight):
        return day(moment), ""
    if not midnight:
        return clock(moment), ""
    return (day(moment), "") if layout.narrow else ("00:00", f"{moment:%a} {day(moment)}")


def _draw_row(
    row: Row, scale: TimeScale, layout: LaneLayout, y: float, job_url: Callable[[str], str] | None
) -> tuple[list[str], float]:
    parts = [line(0, y, layout.width, y, "g"), _place_name(row, layout, y)]
    at = y + (18 if layout.narrow else 0)
    lanes = _pack([_place_run(run, scale, layout) for run in row.runs])
    for number, lane in enumerate(lanes):
        for placed in lane:
            drawn = _draw_run(placed, scale, at + number * _LANE)
            if job_url is not None:
                drawn = [drawing.element("a", "".join(drawn), href=job_url(placed.run.job), tabindex="-1")]
            parts += drawn
    at += len(lanes) * _LANE
    for ceiling in row.ceilings:
        # The first strip of a place without jobs lies beside the name of the place.
        named = not layout.narrow and at > y
        drawn, at = _draw_ceiling(ceiling, scale, at, named=named)
        parts += drawn
    least = y + (18 if layout.narrow else _LANE)
    return parts, max(at, least) + 9


def _place_name(row: Row, layout: LaneLayout, y: float) -> str:
    cloud, region = row.cloud or "all clouds", row.region or ("all regions" if row.cloud else "")
    room = (layout.width if layout.narrow else layout.gutter) - text_width(cloud) - 20
    words = drawing.element("tspan", html.escape(f"{cloud} "), cls="s") + html.escape(fit_text(region, room, bold=True))
    return drawing.element("text", words, x=6.0 if layout.narrow else 0.0, y=y + (14 if layout.narrow else 17), cls="b")


def _place_run(run: JobRun, scale: TimeScale, layout: LaneLayout) -> _PlacedRun:
    """Return a run with its label where it fits: in the longest bar, right of the last, left of the first."""
    drawn = [(span, bar.outlook) for bar in run.bars for span in _bar_spans(bar, scale)]
    spans = [span for span, _ in drawn]
    left, right = min(x for x, _ in spans), max(x for _, x in spans)
    name = clip_text(run.job, _LONGEST_NAME)
    short = f"{run.letter}  {name}"
    full = short if layout.narrow else f"{short} · {run.size}"
    widest, hatched = max(drawn, key=lambda pair: pair[0][1] - pair[0][0])
    for words in (full, short):
        if text_width(words) + 10 <= widest[1] - widest[0]:
            label = _Label(words, widest[0] + 6, "", *widest, halo=hatched)
            return _PlacedRun(run, label, left, right)
    for words in (full, short):
        need = text_width(words)
        if right + 6 + need <= scale.right_x:
            label = _Label(words, right + 6, "", right + 6, right + 6 + need)
            return _PlacedRun(run, label, left, label.right_x)
        if left - 6 - need >= scale.left_x:
            label = _Label(words, left - 6, "e", left - 6 - need, left - 6)
            return _PlacedRun(run, label, label.left_x, right)
    before, after = left - 6 - scale.left_x, scale.right_x - right - 6
    words = fit_text(short, max(before, after, 30.0))
    if after >= before:
        return _PlacedRun(run, _Label(words, right + 6, "", right + 6, scale.right_x), left, scale.right_x)
    return _PlacedRun(run, _Label(words, left - 6, "e", scale.left_x, left - 6), scale.left_x, right)


def _bar_spans(bar: Bar, scale: TimeScale) -> list[tuple[float, float]]:
    """Return where a bar is drawn, at least as wide as the narrowest."""
    spans = []
    for x1, x2 in scale.spans(bar.start, bar.end):
        left = min(x1, scale.right_x - _NARROWEST)
        spans.append((left, max(x2, left + _NARROWEST)))
    return spans


def _pack(runs: Sequence[_PlacedRun]) -> list[list[_PlacedRun]]:
    """Return the runs in as few lanes as go without anything meeting; a lane has runs of one market only."""
    lanes: list[list[_PlacedRun]] = []
    first = 0
    for number, placed in enumerate(runs):
        if number and placed.run.market != runs[number - 1].run.market:
            first = len(lanes)
        for at in range(first, len(lanes)):
            if all(
                placed.left_x >= other.right_x + _APART or placed.right_x + _APART <= other.left_x
                for other in lanes[at]
            ):
                lanes[at].append(placed)
                break
        else:
            lanes.append([placed])
    return lanes


def _draw_run(placed: _PlacedRun, scale: TimeScale, y: float) -> list[str]:
    run, parts = placed.run, []
    before: float | None = None
    for bar in run.bars:
        spans = _bar_spans(bar, scale)
        if before is not None and spans[0][0] - before > 1:
            parts.append(line(before, y + 13, spans[0][0], y + 13, "dash"))
        for x1, x2 in spans:
            width = max(x2 - x1 - 1.5, _NARROWEST - 1.5)
            words = drawing.title(_tooltip(run, bar))
            place = f"{run.cloud}/{run.region}"
            data = {"data_job": run.job, "data_place": place, "data_market": run.market, "data_size": run.size}
            times = {"data_start": stamp(bar.start), "data_end": stamp(bar.end), "data_lines": bar.lines}
            shape = "out" if bar.outlook else "bar"
            cls = f"{shape} {run.market}"
            parts.append(rect(x1 + 0.75, y + 4.75, width, _BAR, cls, words, rx=3, **data, **times))
        before = spans[-1][1]
    label = placed.label
    parts.append(text(label.x, y + 17, label.words, " ".join(filter(None, ("halo" * label.halo, label.anchor)))))
    return parts


def _tooltip(run: JobRun, bar: Bar) -> str:
    kind = ", outlook" if bar.outlook else ""
    times = f"{day_clock(bar.start)} to {day_clock(bar.end)} UTC"
    return f"{run.job}: {run.size}, {MARKET_WORDS[run.market]}{kind}, {times}, {money(bar.cost_usd)}"


def ceiling_in_words(ceiling: Ceiling) -> str:
    """Return a limit with its size and worth, such as ``Ceiling: p5, 1 machine; one machine more would save $2.00``."""
    rest = "the use of these jobs alone" if ceiling.is_part else ceiling.worth
    rest = rest or ("full at times; no worth was found" if ceiling.limit.full else "never full")
    kept = f"in use: {ceiling.kept}; " if ceiling.kept else ""
    return f"Ceiling: {ceiling.name}, {ceiling.size}; {kept}{rest}"


def _draw_ceiling(ceiling: Ceiling, scale: TimeScale, y: float, *, named: bool) -> tuple[list[str], float]:
    """Return the strip of use under a heavy line at the limit with its words, and where it ends."""
    top, bottom = y + 5, y + 5 + _STRIP
    parts = [text(0, bottom - 2, "in use", "s")] if named else []
    parts += _draw_use(ceiling.limit.use, ceiling.limit.amount, scale, bottom, ceiling.limit.market or "met")
    for x1, x2 in scale.spans(scale.start, scale.end):
        parts += [line(x1, top, x2, top, "mk"), line(x1, bottom, x2, bottom, "ax")]
    notes = _draw_note(ceiling_in_words(ceiling), scale, bottom - 1)
    return [*parts, *notes], bottom - 1 + _NOTE * len(notes) + 3


def _draw_use(use: Sequence[UseStep], most: float, scale: TimeScale, bottom: float, cls: str) -> Iterator[str]:
    """Yield a bar for each step of a use over time, as high as its share of the most."""
    for step in use:
        height = max(_STRIP * (min(step.used / most, 1.0) if most else 1.0), 0.5)
        for x1, x2 in scale.spans(step.start, step.end):
            yield rect(x1, bottom - height, max(x2 - x1, 0.5), height, f"use {cls}")


def _draw_note(words: str, scale: TimeScale, y: float) -> list[str]:
    lines = drawing.wrap_to_width(words, scale.right_x - scale.left_x - 12)
    return [text(scale.left_x + 6, y + _NOTE * number, line_words, "s") for number, line_words in enumerate(lines, 1)]


def _draw_folded(folded: Folded, scale: TimeScale, layout: LaneLayout, y: float) -> tuple[list[str], float]:
    """Return one row for all places with small jobs: how many, and the accelerators that they hold over time."""
    most = max((step.used for step in folded.load), default=0.0)
    words = (
        f"{format_count(folded.jobs, 'small job')} in {format_count(folded.places, 'place')}, "
        f"{money(folded.cost_usd)}, up to {most:,.0f} accelerators at once; the table lists them"
    )
    parts = [line(0, y, layout.width, y, "g")]
    if not layout.narrow:
        parts.append(text(0, y + 17, "small jobs", "b"))
    bottom = y + 5 + _STRIP
    notes = _draw_note(words, scale, bottom)
    return [*parts, *_draw_use(folded.load, most, scale, bottom, "met"), *notes], bottom + _NOTE * len(notes) + 9
