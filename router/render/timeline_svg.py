"""Draw the attempts of a job over time as SVG: bars by place, notices and checkpoints as marks, waiting dotted.

Pure functions; the table beside the drawing has the same figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from router.render import drawing
from router.render.axes import LaneLayout, TimeScale, free_ticks, time_words
from router.render.drawing import fit_text, line, rect, text, text_width
from router.render.figures import MARKET_LETTERS, day_clock

_TOP = 40.0
_LANE = 34.0
_BAR = 17.0
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One attempt: its number, place, market and machines from ``start`` to ``end``, with marks in between."""

    number: int
    place: str
    market: str
    size: str
    start: datetime
    end: datetime
    is_live: bool
    notices: tuple[datetime, ...]
    saves: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Attempts in order; ``now`` is drawn where the job is not over, the deadline where it has one."""

    bars: tuple[TimelineBar, ...]
    now: datetime | None
    deadline: datetime | None
    waits: bool

    @property
    def start(self) -> datetime:
        return min(bar.start for bar in self.bars)

    @property
    def end(self) -> datetime:
        """Return where the axis ends; a deadline far beyond the attempts is left to the words."""
        last = max([bar.end for bar in self.bars] + ([self.now] if self.now else []))
        last = max(last, self.start + _MINUTE)
        near = last + (last - self.start)
        return self.deadline if self.deadline is not None and last < self.deadline <= near else last


TIMELINES = (LaneLayout(1078, 190, 70), LaneLayout(692, 170, 66), LaneLayout(340, 0, 56, narrow=True))


def draw_timeline(timeline: Timeline, layout: LaneLayout) -> str:
    """Return the picture as an SVG element; a row is a place and market."""
    scale = TimeScale(timeline.start, timeline.end, timeline.end, layout.gutter, float(layout.width) - 8)
    places = list(dict.fromkeys((bar.place, bar.market) for bar in timeline.bars))
    row = _LANE + (16 if layout.narrow else 0)
    bottom = _TOP + len(places) * row
    parts = _draw_axis(timeline, scale, layout, bottom)
    names: list[str] = []
    tops = {place: _TOP + at * row for at, place in enumerate(places)}
    for (place, market), top in tops.items():
        parts.append(line(0, top, layout.width, top, "g"))
        words = fit_text(place, layout.width - 40 if layout.narrow else layout.gutter - 26, bold=True)
        y = top + (13 if layout.narrow else 20)
        names.append(text(6 if layout.narrow else 0, y, words, "b halo"))
        x = layout.width - 14 if layout.narrow else scale.left_x - 10
        names.append(text(x, y, MARKET_LETTERS[market], "s e halo"))
    shift = 16.0 if layout.narrow else 0.0
    before: tuple[float, float] | None = None
    for bar in timeline.bars:
        y = tops[bar.place, bar.market] + shift + 7
        left = scale.at(bar.start)
        if before is not None:
            parts += _draw_wait(before, (left, y + _BAR / 2))
        right = max(scale.at(bar.end), left + 3)
        parts += _draw_bar(bar, left, right, y, scale)
        before = (right, y + _BAR / 2)
    if timeline.waits and timeline.now is not None and before is not None:
        parts += _draw_wait(before, (scale.at(timeline.now), before[1]))
    parts += names
    name = (
        "Attempts of the job over time: rows are places, bars are attempts numbered in order, triangles are notices, "
        "ticks are checkpoints saved, dotted lines are waiting. The table below holds the same figures."
    )
    return drawing.picture(name, layout.width, bottom + 4, parts)


def _draw_wait(start: tuple[float, float], end: tuple[float, float]) -> list[str]:
    (x1, y1), (x2, y2) = start, end
    parts = [line(x1, y1, x2, y1, "hz")] if x2 - x1 > 1 else []
    return [*parts, line(x2, y1, x2, y2, "hz")] if abs(y2 - y1) > 1 else parts


def _draw_bar(bar: TimelineBar, left_x: float, right_x: float, y: float, scale: TimeScale) -> list[str]:
    until = "now" if bar.is_live else f"{day_clock(bar.end)} UTC"
    words = f"Attempt {bar.number}: {bar.size}, {bar.place}, {day_clock(bar.start)} to {until}"
    data = {"data_attempt": bar.number, "data_start": bar.start.isoformat(), "data_end": bar.end.isoformat()}
    parts = [rect(left_x, y, right_x - left_x, _BAR, f"bar {bar.market}", drawing.title(words), rx=3, **data)]
    labels = (f"{bar.number} · {bar.size}", f"{bar.number}")
    label = next((words for words in labels if text_width(words) + 10 <= right_x - left_x), None)
    if label is not None:
        parts.append(text(left_x + 6, y + 13, label))
    for at in bar.saves:
        x = scale.at(at)
        parts.append(line(x, y + _BAR - 4, x, y + _BAR + 3, "mkl"))
    return parts + [drawing.mark("drop", scale.at(at), y - 6, 4, "full inv") for at in bar.notices]


def _draw_axis(timeline: Timeline, scale: TimeScale, layout: LaneLayout, bottom: float) -> list[str]:
    top, parts = _TOP - 6, [line(scale.left_x, _TOP - 6, scale.left_x, bottom, "ax")]
    heavy = []
    if timeline.now is not None:
        heavy.append((scale.at(timeline.now), "now"))
    if timeline.deadline is not None and timeline.start <= timeline.deadline <= timeline.end:
        heavy.append((scale.at(timeline.deadline), "deadline"))
    taken = scale.left_x + (0 if layout.narrow else -20)
    for x, moment in free_ticks(scale.ticks(layout.spacing), time_words, taken, layout.width):
        parts += [line(x, top, x, bottom, "g"), text(x, 28, time_words(moment), "s m")]
    start = day_clock(timeline.start)
    parts.append(text(scale.left_x if layout.narrow else 0, 12, f"from {start}", "s"))
    free = (scale.left_x if layout.narrow else 0) + text_width(f"from {start}") + 8
    for x, words in sorted(heavy):
        half = text_width(words, bold=True) / 2
        at = min(x, layout.width - half)
        parts.append(line(x, top - 2, x, bottom, "mk"))
        if at - half >= free:
            parts.append(text(at, 12, words, "b m"))
            free = at + half + 8
    return parts


def markets_drawn(bars: Sequence[TimelineBar]) -> tuple[str, ...]:
    """Return the markets of the bars, for the key."""
    return tuple(market for market in MARKET_LETTERS if any(bar.market == market for bar in bars))
