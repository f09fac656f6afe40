"""Draw SVG: shapes with classes of the shared style, the width of words, room for labels. Pure functions.

Colours and line styles are classes of ``templates/drawing.css``, so that one drawing serves light, dark and paper.
Scales and axes are in :mod:`router.render.axes`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar

from markupsafe import Markup

from router.render.tables import clip_text

# Colours of series, classes c0 to c7, that people with red-green blindness can tell apart (after Okabe and Ito,
# "Color Universal Design", 2008), darker in light and brighter in dark until they have a contrast of 3:1.
SERIES = 8
_WIDE = frozenset("mwMW@%&")
_MARGIN = 12  # around a picture in a file of its own
_Layout = TypeVar("_Layout")
_TOKENS = re.compile(r":root\{(.*?)\}", re.DOTALL)
_TOKEN = re.compile(r"--(\w+):([^;}]+)")
_VARIABLE = re.compile(r"var\(--(\w+)\)")
_NARROW = frozenset("iljtfrI.,:;'|!()[] ·-/")


def series_class(number: int) -> str:
    """Return the classes of the line of a series: its colour and its dashes, which differ for the first 32."""
    dashes = (number // 4 + number // 16) % 4
    return f"c{number % SERIES}{f' d{dashes}' if dashes else ''}"


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


def polyline(points: Iterable[tuple[float, float]], cls: str, content: str = "", **more: object) -> str:
    """Return a line through points."""
    return element("polyline", content, points=_join_points(points), cls=cls, **more)


def polygon(points: Iterable[tuple[float, float]], cls: str) -> str:
    """Return the area within points."""
    return element("polygon", points=_join_points(points), cls=cls)


def _join_points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def dot(x: float, y: float, radius: float, cls: str, content: str = "", **more: object) -> str:
    """Return a circle; ``content`` is markup such as a title."""
    return element("circle", content, cx=float(x), cy=float(y), r=radius, cls=cls, **more)


def mark(shape: str, x: float, y: float, size: float, cls: str, content: str = "", **more: object) -> str:
    """Return a mark around a point: a circle, square, diamond, triangle, or a triangle that hangs from it: ``drop``."""
    if shape == "circle":
        return dot(x, y, size, cls, content, **more)
    if shape == "square":
        return rect(x - size, y - size, 2 * size, 2 * size, cls, content, **more)
    half = f"{size + 1:.1f}"
    paths = {
        "diamond": f"M{x:.1f} {y - size - 1:.1f}l{half} {half}l-{half} {half}l-{half} -{half}z",
        "triangle": f"M{x - size - 1:.1f} {y + size:.1f}h{2 * size + 2:.1f}l-{half} -{2 * size + 1:.1f}z",
        "drop": f"M{x - size:.1f} {y:.1f}h{2 * size:.1f}l-{size:.1f} {2 * size - 1:.1f}z",
    }
    return element("path", content, d=paths[shape], cls=cls, **more)


def key(entries: Iterable[tuple[str, str]], left_x: float, right_x: float, y: float) -> tuple[list[str], float]:
    """Return samples, drawn 22 pixels wide around height 0, with their words in rows, and where the rows end."""
    parts, x = [], left_x
    for sample, words in entries:
        width = 44 + text_width(words)
        if x > left_x and x + width > right_x:
            x, y = left_x, y + 18
        parts += [element("g", sample, transform=f"translate({x:.1f} {y:.1f})"), text(x + 28, y + 4, words)]
        x += width
    return parts, y + 18


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


def in_widths(draw: Callable[[_Layout], str], layouts: Iterable[_Layout]) -> Markup:
    """Return a picture once for each of the three widths of a page, of which the style shows one.

    It is empty where nothing is drawn. ``draw`` has to escape every text, as the functions of this module do.
    """
    drawn = [draw(layout) for layout in layouts]
    shown = (f'<div class="{width}">{each}</div>' for width, each in zip("wtn", drawn, strict=True))
    return Markup("".join(shown) if all(drawn) else "")


def stylesheet() -> str:
    """Return the style of drawings: colours in light and dark, then one rule or more for each class."""
    return files("router.render").joinpath("templates", "drawing.css").read_text(encoding="utf-8")


def stand_alone(drawn: str) -> str:
    """Return a picture as the content of a file of its own, with its size, its style and a ground."""
    head, body = drawn.split(">", 1)
    width, height = head.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()
    wide, high = int(width) + 2 * _MARGIN, int(height) + 2 * _MARGIN
    size = f'xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif"'
    ground = f'<rect x="-{_MARGIN}" y="-{_MARGIN}" width="{wide}" height="{high}" class="gap"/>'
    head = head.replace("<svg", f"<svg {size}", 1)
    head = head.replace(f'"0 0 {width} {height}"', f'"-{_MARGIN} -{_MARGIN} {wide} {high}"', 1)
    return f"{head}><style>\n{_file_style()}</style>{ground}{body}\n"


@cache
def _file_style() -> str:
    """Return the style without variables, which viewers of SVG other than browsers do not know."""
    light, dark = (dict(_TOKEN.findall(block)) for block in _TOKENS.findall(stylesheet()))
    rules = stylesheet().rpartition("}}\n")[2].replace("var(--c)", "currentColor").replace("--c:", "color:")
    coloured = "".join(rule for rule in rules.splitlines(keepends=True) if "var(" in rule)
    return f"{_resolve(rules, light)}@media screen and (prefers-color-scheme:dark){{\n{_resolve(coloured, dark)}}}\n"


def _resolve(css: str, tokens: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda name: tokens[name[1]], css)


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
class LabelBox:
    """The room that a label takes in a drawing, so that labels never meet."""

    left_x: float
    top_y: float
    right_x: float
    bottom_y: float

    def meets(self, other: LabelBox) -> bool:
        return (
            self.left_x < other.right_x
            and other.left_x < self.right_x
            and self.top_y < other.bottom_y
            and other.top_y < self.bottom_y
        )

    def holds(self, x: float, y: float) -> bool:
        return self.left_x <= x <= self.right_x and self.top_y <= y <= self.bottom_y

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        return min(max(x, self.left_x), self.right_x), min(max(y, self.top_y), self.bottom_y)
