"""SVG drawing without dependencies; output is reproducible byte for byte. Pure functions."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

# Colours that people with red-green blindness can tell apart (Okabe and Ito, "Color Universal Design", 2008).
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
BLUE, ORANGE, GREY = COLOURS[0], COLOURS[1], COLOURS[7]
INK: Final = "#222"


def text(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False, fill: str = INK) -> str:
    """Return a text element at a point."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight} fill="{fill}">{html.escape(words)}</text>'


def picture(title: str, width: int, height: int, parts: Sequence[str], *, alone: bool = False) -> str:
    """Return an SVG of the given size for a page, or with ``alone`` for a file of its own.

    ``title`` is its accessible name.
    """
    name, body = html.escape(title), "\n".join(parts)
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    return (
        f'<svg{space} viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{name}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">\n<title>{name}</title>\n{body}\n</svg>'
    )
