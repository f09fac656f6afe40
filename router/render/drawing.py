"""Draw SVG for pages: shapes with classes of the shared style, the width of words, scales of time. Pure functions.

Colours and line styles are classes of ``templates/base.html``, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from router.render.tables import clip_text

_WIDE = frozenset("mwMW@%&")
_NARROW = frozenset("iljtfrI.,:;'|!()[] ·-/")
_HOUR = timedelta(hours=1)


def element(tag: str, content: str = "", **attributes: object) -> str:
    """Return an element; ``content`` is markup, values are text, ``data_job`` becomes ``data-job``, ``cls`` class.

    Numbers are written with one decimal; attributes that are None or empty are left out.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is None or value == "":
            continue
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        words.append(f'{"class" if name == "cls" else name.replace("_", "-")}="{html.escape(text)}"')
    head = " ".join(words)
    return f"<{head}>{content}</{tag}>" if content else f"<{head}/>"


def rect(x: float, y: float, width: float, height: float, cls: str, content: str = "", **more: object) -> str:
    """Return a rectangle; ``content`` is markup such as a title."""
    return element("rect", content, x=float(x), y=float(y), width=float(width), height=float(height), cls=cls, **more)


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    """Return a straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), cls=cls)


def text(x: float, y: float, words: str, cls: str = "") -> str:
    """Return words at a point; classes ``m`` and ``e`` centre and end them there."""
    return element("text", html.escape(words, quote=False), x=float(x), y=float(y), cls=cls)


def title(words: str) -> str:
    """Return the tooltip of the element that holds it."""
    return f"<title>{html.escape(words, quote=False)}</title>"


def picture(name: str, width: int, height: float, parts: Sequence[str], *, has_links: bool = False) -> str:
    """Return an SVG of ``width``; ``name`` is read to people who do not see it.

    An image may hold no links: a picture that has some is a group. The style of pages keeps the three widths that they
    have, so that text stays 12 px on the screen.
    """
    role = "group" if has_links else "img"
    head = f'<svg viewBox="0 0 {width} {height:.0f}" role="{role}" aria-label="{html.escape(name)}">'
    return f"{head}{''.join(parts)}</svg>"


def text_width(words: str, *, bold: bool = False) -> float:
    """Return an estimate, rather too wide, of the pixels that words take at 12 px in the system's font."""
    width = 0.0
    for letter in words:
        if letter in _WIDE:
            width += 10.4
        elif letter in _NARROW:
            width += 4.2
        else:
            width += 8.3 if letter.isupper() else 7.0
    return width * (1.16 if bold else 1.0)


def fit_text(words: str, width: float, *, bold: bool = False) -> str:
    """Return words without so much of their middle that they fit; at least three characters stay."""
    length = len(words)
    while length > 3 and text_width(clip_text(words, length), bold=bold) > width:
        length -= 1
    return clip_text(words, length)


def wrap_to_width(words: str, width: float) -> tuple[str, ...]:
    """Return words as lines that fit; a word that is longer than a line loses its middle."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(fit_text(word, width))
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Positions of moments on an axis with two scales: up to ``horizon`` wide, a gap, then tighter up to ``end``.

    Positions run from ``left`` to ``right``; ``share`` of the length belongs to the time before the horizon. Where
    nothing lies beyond the horizon, all of it does.
    """

    start: datetime
    horizon: datetime
    end: datetime
    left: float
    right: float
    share: float = 0.65
    gap: float = 14.0

    @property
    def has_outlook(self) -> bool:
        """Return whether the axis goes on beyond the horizon."""
        return self.end > self.horizon

    @property
    def horizon_at(self) -> float:
        """Return where the first scale ends."""
        return self.left + (self.right - self.left) * self.share if self.has_outlook else self.right

    @property
    def outlook_at(self) -> float:
        """Return where the second scale begins."""
        return self.horizon_at + self.gap if self.has_outlook else self.right

    def at(self, moment: datetime, *, outlook: bool = False) -> float:
        """Return the position of a moment; at the horizon itself the outlook begins behind the gap."""
        if moment < self.horizon or (moment == self.horizon and not outlook) or not self.has_outlook:
            whole = max(self.horizon - self.start, timedelta(microseconds=1))
            return self.left + (self.horizon_at - self.left) * min(max((moment - self.start) / whole, 0.0), 1.0)
        whole = self.end - self.horizon
        return self.outlook_at + (self.right - self.outlook_at) * min((moment - self.horizon) / whole, 1.0)

    def spans(self, start: datetime, end: datetime) -> Iterator[tuple[float, float]]:
        """Yield from where to where a stretch of time reaches: once for each scale that it touches."""
        if start < self.horizon:
            yield self.at(start), self.at(min(end, self.horizon))
        if end > self.horizon and self.has_outlook:
            yield self.at(max(start, self.horizon), outlook=True), self.at(end, outlook=True)

    def ticks(self, spacing: float) -> Iterator[tuple[float, datetime]]:
        """Yield round moments with their positions, at least ``spacing`` apart within a scale."""
        pixels = (self.horizon_at - self.left) / max((self.horizon - self.start) / _HOUR, 1e-9)
        step = next((h for h in (1, 2, 3, 6, 12, 24, 48, 96, 192) if h * pixels >= spacing), 384)
        for moment in round_moments(self.start, self.horizon, step):
            yield self.at(moment), moment
        if self.has_outlook:
            pixels = (self.right - self.outlook_at) / ((self.end - self.horizon) / _HOUR)
            days = next((d for d in (1, 2, 5, 7, 14, 30, 60, 90) if 24 * d * pixels >= spacing), 180)
            for moment in round_moments(self.horizon, self.end, 24 * days):
                yield self.at(moment, outlook=True), moment


def round_moments(start: datetime, end: datetime, step_hours: int) -> Iterator[datetime]:
    """Yield moments strictly between two, in steps from midnight (UTC), or from the first midnight for whole days."""
    midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moment = midnight + timedelta(days=1) if step_hours >= 24 else midnight
    while moment < end:
        if moment > start:
            yield moment
        moment += step_hours * _HOUR


@dataclass(frozen=True, slots=True)
class LabelBox:
    """The room that a label takes in a drawing, so that labels never meet."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: LabelBox) -> bool:
        """Return whether the two overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def holds(self, x: float, y: float) -> bool:
        """Return whether a point is in it."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box that is nearest to a point."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)
