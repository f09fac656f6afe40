"""Draw the picture of a plan in a terminal: one line a run, letters by market, capital for orders. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from pricing.units import format_count
from router.planning.document.plan import Plan
from router.planning.document.plan_usage import UseStep
from router.render.axes import TimeScale
from router.render.figures import clock, day, day_clock, money
from router.render.gantt import Gantt, JobRun, Row, ceiling_in_words, gantt_of
from router.render.tables import PLAIN, Screen, clip_text, wrap_text

_LEVELS = " ▁▂▃▄▅▆▇█"
_LONGEST_NAME = 40


def gantt_text(plan: Plan, screen: Screen = PLAIN) -> str:
    """Return the picture in the width of the screen; orders are capital letters, the outlook small ones."""
    gantt = gantt_of(plan)
    names = max((len(run.job) for row in gantt.rows for run in row.runs), default=0)
    sizes = max((len(run.size) for row in gantt.rows for run in row.runs), default=0)
    name = min(max(names, 10), _LONGEST_NAME, max(18, screen.width // 4))
    left = 2 + name + 1 + sizes + 1
    scale = TimeScale(plan.horizon_start, plan.horizon_end, gantt.end, 0, screen.width - left, gap=1)
    lines = [f"Plan of {day_clock(plan.as_of)} UTC, orders until {day_clock(plan.horizon_end)}"]
    if scale.has_outlook:
        lines[0] += f", outlook to {day_clock(gantt.end)}"
    if not gantt.rows and gantt.folded is None:
        return "\n".join([*lines, "nothing runs"]) + "\n"
    lines += ["", (" " * left + _axis(scale)).rstrip()]
    for row in gantt.rows:
        lines += _row(row, scale, name, sizes, screen)
    lines += _folded(gantt, scale, left, screen)
    lines += ["", "S spot, D on-demand, R reserved; small letters: outlook, not ordered; blocks: use of a limit"]
    lines[-1] = wrap_text(lines[-1], width=screen.width)
    return "\n".join(lines) + "\n"


def _columns(scale: TimeScale) -> int:
    return int(scale.right_x)


def _axis(scale: TimeScale) -> str:
    """Return the line of times above the picture; now is its first column."""
    cells = [" "] * _columns(scale)
    _write(cells, 0, clock(scale.start))
    free = 6
    for x, moment in scale.ticks(7):
        at = round(x)
        words = clock(moment) if moment < scale.horizon and clock(moment) != "00:00" else day(moment)
        if moment >= scale.horizon and at <= scale.horizon_at:
            continue
        if at >= free and at + len(words) <= len(cells):
            _write(cells, at, words)
            free = at + len(words) + 1
    return "".join(cells)


def _write(cells: list[str], at: int, words: str) -> None:
    cells[at : at + len(words)] = list(words)


def _row(row: Row, scale: TimeScale, name: int, sizes: int, screen: Screen) -> list[str]:
    place = f"{row.cloud or 'all clouds'} {row.region or ('all regions' if row.cloud else '')}".rstrip()
    lines = [screen.heading(place)]
    for run in row.runs:
        head = f"  {clip_text(run.job, name):<{name}} {run.size:>{sizes}} "
        lines.append((head + _bars(run, scale)).rstrip())
    left = 2 + name + 1 + sizes + 1
    for ceiling in row.ceilings:
        lines.append(
            (f"  {'in use':<{left - 2}}" + _levels(ceiling.limit.use, float(ceiling.limit.amount), scale)).rstrip()
        )
        lines.append(wrap_text(ceiling_in_words(ceiling), "  ", screen.width))
    return lines


def _bars(run: JobRun, scale: TimeScale) -> str:
    cells = _empty(scale)
    for bar in run.bars:
        letter = run.letter.lower() if bar.outlook else run.letter
        for first, last in _cells(bar.start, bar.end, scale):
            cells[first:last] = letter * (last - first)
    return "".join(cells)


def _levels(use: Iterable[UseStep], max_use: float, scale: TimeScale) -> str:
    """Return use over time as blocks of eight heights; a column shows its greatest use."""
    cells, heights = _empty(scale), [0.0] * _columns(scale)
    for step in use:
        for first, last in _cells(step.start, step.end, scale):
            for at in range(first, last):
                heights[at] = max(heights[at], step.used / max_use if max_use else 1.0)
    for at, height in enumerate(heights):
        if height:
            cells[at] = _LEVELS[max(1, min(8, math.ceil(height * 8 - 1e-6)))]
    return "".join(cells)


def _empty(scale: TimeScale) -> list[str]:
    """Return blank columns with a mark where the orders end."""
    cells = [" "] * _columns(scale)
    if scale.has_outlook:
        cells[int(scale.horizon_at)] = "¦"
    return cells


def _cells(start: datetime, end: datetime, scale: TimeScale) -> list[tuple[int, int]]:
    """Return the columns of a stretch of time, at least one in each scale; the mark at the horizon stays free."""
    mark = int(scale.horizon_at) if scale.has_outlook else _columns(scale)
    column_ranges = []
    for x1, x2 in scale.spans(start, end):
        inside = x1 < scale.horizon_at or not scale.has_outlook
        least, most = (0, mark) if inside else (mark + 1, _columns(scale))
        first = min(max(math.floor(x1 + 1e-6), least), most - 1)
        column_ranges.append((first, min(max(round(x2), first + 1), most)))
    return column_ranges


def _folded(gantt: Gantt, scale: TimeScale, label_width: int, screen: Screen) -> list[str]:
    if gantt.folded is None:
        return []
    folded = gantt.folded
    most = max((step.used for step in folded.load), default=0.0)
    words = (
        f"{format_count(folded.jobs, 'small job')} in {format_count(folded.places, 'place')}, {money(folded.cost_usd)}"
    )
    lines = [screen.heading(words), (f"  {'in use':<{label_width - 2}}" + _levels(folded.load, most, scale)).rstrip()]
    return [*lines, f"  up to {most:,.0f} accelerators at once; -o wide lists the jobs"]
