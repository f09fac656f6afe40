"""Scales and axes of drawings: numbers and moments as pixels, round ticks, labels that never meet. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from router.render.drawing import line, text, text_width
from router.render.figures import clock, day

_Value = TypeVar("_Value")
_MINUTE = timedelta(minutes=1)
_HOUR_MINUTES, _DAY_MINUTES = 60, 24 * 60
_ROUND_HOURS = (1, 2, 3, 6, 12)
_ROUND_DAYS = (1, 2, 3, 5, 7, 14, 30, 60, 90, 180)
_ROUND_MINUTES = (
    *(1, 2, 5, 10, 15, 30),
    *(hours * _HOUR_MINUTES for hours in _ROUND_HOURS),
    *(days * _DAY_MINUTES for days in _ROUND_DAYS),
)
_LABELS_APART = 6.0


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """Width of a drawing, its column for names, and the least distance of ticks; a ``narrow`` one names above lanes."""

    width: int
    gutter: float
    spacing: float
    narrow: bool = False


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Width of a drawing, and how much of it belongs to words on each side."""

    width: int
    left_margin: float
    right_margin: float


@dataclass(frozen=True, slots=True)
class ChartLayout(PictureLayout):
    """Layout of a chart of some height, with the least distance of ticks."""

    height: int
    spacing: float = 0.0


@dataclass(frozen=True, slots=True)
class RowLayout(PictureLayout):
    """Layout of a drawing of rows of a height; ``above``: names stand above what is drawn, else left of it.

    ``notes``: there is room for notes beside names. ``dot`` is the radius of dots.
    """

    row: float
    above: bool = False
    notes: bool = True
    dot: float = 0.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Positions of numbers: ``low`` lies at ``start`` and ``high`` at ``end``, which may be above or left of it."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a number; all are at the start where the scale has no length."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)

    def ticks(self, unit: float) -> range:
        """Return how often ``unit`` lies in each tick of the scale."""
        return range(math.ceil(self.low / unit - 1e-9), math.floor(self.high / unit + 1e-9) + 1)


def tick_unit(length: float, max_ticks: int) -> float:
    """Return a round distance of ticks (1, 2 or 5 times a power of ten) of which at most ``max_ticks`` fit."""
    if length <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(length / max_ticks))
    return next((n * power for n in (1, 2, 5, 10) if length / (n * power) <= max_ticks * 1.001), 10 * power)


def scale_around(values: Iterable[float], start: float, end: float, max_ticks: int) -> tuple[Scale, float]:
    """Return a scale that holds values between two ticks, and the distance of its ticks.

    It begins at zero where the lowest value is near to it.
    """
    known = tuple(values)
    low, high = min(known), max(known)
    if low < (high - low) * 0.5:
        low = min(low, 0.0)
    unit = tick_unit(max(high - low, 0.02 * high, 1e-6), max_ticks)
    first = math.floor(low / unit + 1e-9)
    return Scale(first * unit, max(math.ceil(high / unit - 1e-9), first + 1) * unit, start, end), unit


def value_grid(scale: Scale, unit: float, left_x: float, right_x: float, label: Callable[[int], str]) -> Iterator[str]:
    """Yield a line across for each tick, that of zero as an axis, with its label left of it."""
    for number in scale.ticks(unit):
        y = scale.at(number * unit)
        yield line(left_x, y, right_x, y, "ax" if number == 0 else "g")
        yield text(left_x - 7, y + 4, label(number), "s e")


def foot_tick(x: float, base: float, words: str = "") -> tuple[str, ...]:
    """Return a tick below an axis with its words."""
    tick = line(x, base, x, base + 4, "ax")
    return (tick, text(x, base + 17, words, "s m")) if words else (tick,)


def free_ticks(
    ticks: Iterable[tuple[float, _Value]],
    words: Callable[[_Value], str],
    taken: float,
    right: float,
    beyond: float = math.inf,
) -> Iterator[tuple[float, _Value]]:
    """Yield the ticks whose words, centred, meet neither those before nor an edge.

    ``taken`` is where free room begins, ``right`` where it ends. Words of ticks behind ``beyond`` begin behind it.
    """
    for x, value in ticks:
        half = text_width(words(value)) / 2
        if x > beyond:
            taken = max(taken, beyond + 4)
        if x - half >= taken and x + half <= right:
            taken = x + half + _LABELS_APART
            yield x, value


def time_words(moment: datetime) -> str:
    """Return a tick's words: the day at midnight, else the time of day."""
    return day(moment) if clock(moment) == "00:00" else clock(moment)


def round_minutes(pixels: float, spacing: float) -> int:
    """Return a round number of minutes that is ``spacing`` wide where one minute is ``pixels`` wide."""
    longest = _DAY_MINUTES * math.ceil(spacing / max(pixels, 1e-12) / _DAY_MINUTES)
    return next((minutes for minutes in _ROUND_MINUTES if minutes * pixels >= spacing), longest)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Positions of moments on an axis with two scales: up to ``horizon`` wide, a gap, then tighter up to ``end``.

    Positions run from ``left_x`` to ``right_x``; ``share`` of the length belongs to the time before the horizon. Where
    nothing lies beyond the horizon, all of it does.
    """

    start: datetime
    horizon: datetime
    end: datetime
    left_x: float
    right_x: float
    share: float = 0.65
    gap: float = 14.0

    @property
    def has_outlook(self) -> bool:
        """Return whether the axis goes on beyond the horizon."""
        return self.end > self.horizon

    @property
    def horizon_at(self) -> float:
        return self.left_x + (self.right_x - self.left_x) * self.share if self.has_outlook else self.right_x

    @property
    def outlook_at(self) -> float:
        return self.horizon_at + self.gap if self.has_outlook else self.right_x

    def at(self, moment: datetime, *, outlook: bool = False) -> float:
        """Return the position of a moment; at the horizon itself the outlook begins behind the gap."""
        if moment < self.horizon or (moment == self.horizon and not outlook) or not self.has_outlook:
            whole = max(self.horizon - self.start, timedelta(microseconds=1))
            return self.left_x + (self.horizon_at - self.left_x) * min(max((moment - self.start) / whole, 0.0), 1.0)
        whole = self.end - self.horizon
        return self.outlook_at + (self.right_x - self.outlook_at) * min((moment - self.horizon) / whole, 1.0)

    def spans(self, start: datetime, end: datetime) -> Iterator[tuple[float, float]]:
        """Yield from where to where a stretch of time reaches: once for each scale that it touches."""
        if start < self.horizon:
            yield self.at(start), self.at(min(end, self.horizon))
        if end > self.horizon and self.has_outlook:
            yield self.at(max(start, self.horizon), outlook=True), self.at(end, outlook=True)

    def ticks(self, spacing: float) -> Iterator[tuple[float, datetime]]:
        """Yield round moments with their positions, at least ``spacing`` apart within a scale; days in the outlook."""
        for moment in _round_moments(self.start, self.horizon, self.horizon_at - self.left_x, spacing):
            yield self.at(moment), moment
        if self.has_outlook:
            length = self.right_x - self.outlook_at
            for moment in _round_moments(self.horizon, self.end, length, spacing, least=_DAY_MINUTES):
                yield self.at(moment, outlook=True), moment


def _round_moments(start: datetime, end: datetime, length: float, spacing: float, least: int = 1) -> Iterator[datetime]:
    """Yield moments strictly between two, in steps from midnight (UTC), or from the first midnight for whole days."""
    minutes = max(least, round_minutes(length / max((end - start) / _MINUTE, 1e-9), spacing))
    moment = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if minutes >= _DAY_MINUTES:
        moment += timedelta(days=1)
    else:
        moment += (start - moment) // (minutes * _MINUTE) * minutes * _MINUTE
    while moment < end:
        if moment > start:
            yield moment
        moment += minutes * _MINUTE
