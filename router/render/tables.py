"""Text formatting for people: money, times, tables, wrapped paragraphs. Pure functions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pricing.money import Usd
from router.showback.report.values import replace_unprintable

WIDTH = 80
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~"})
MARKETS = {"on_demand": "od", "spot": "spot", "reserved": "rsv"}


@dataclass(frozen=True, slots=True)
class Screen:
    """The terminal, pipe or file that a table is drawn for: its width, and the style of headings."""

    width: int = WIDTH
    heading: Callable[[str], str] = str


# Pipes and files.
PLAIN = Screen()


def format_usd(amount: Usd) -> str:
    """Return an amount to the cent, such as ``$1,234.56``."""
    sign = "-" if amount.nanos < 0 else ""
    return f"{sign}${Decimal(abs(amount.nanos)).scaleb(-9):,.2f}"


def format_difference(amount: Usd) -> str:
    """Return a difference to the cent with its sign, such as ``+$1,234.56``; nothing is ``+$0.00``."""
    return ("+" if amount.nanos >= 0 else "") + format_usd(amount)


def format_step_price(amount: Usd | None) -> str:
    """Return the price of a step with three significant digits and no exponent; empty if there is none."""
    if amount is None:
        return ""
    value = amount.dollars()
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    digits = 2
    while value < 10 ** (1 - digits) and digits < 9:
        digits += 1
    return f"{value:.{digits + 1 if value < 10 else digits}f}"[:9]


def format_day_time(moment: datetime | None) -> str:
    """Return day of the month and time in UTC, such as ``21 18:00``; empty for None."""
    return moment.strftime("%d %H:%M") if moment else ""


def describe_price_date(day: str) -> str:
    """Return the day of a price in words; ``undated`` is the word for none."""
    return "undated price" if day == "undated" else f"price of {day}"


def format_timestamp(moment: datetime) -> str:
    """Return a timestamp such as ``2026-11-21 18:00Z``."""
    return moment.strftime("%Y-%m-%d %H:%MZ")


def escape_markdown(text: str) -> str:
    """Return text in one line that GitHub's Markdown shows as it is."""
    return replace_unprintable(text.replace("\n", " ")).translate(_MARKDOWN)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str]) -> str:
    """Return a table of GitHub's Markdown; ``right`` names right-aligned columns."""
    ends = ["---:" if name in right else "---" for name in header]
    lines = [[escape_markdown(cell) for cell in line] for line in (header, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], ends, *lines[1:]))


def clip_text(text: str, width: int) -> str:
    """Return at most ``width`` characters, with an ellipsis in the middle of longer text."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def format_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[str],
    widths: Mapping[str, int],
    screen: Screen = PLAIN,
) -> str:
    """Return a table; ``right`` names right-aligned columns, ``widths`` gives the greatest width of columns.

    On a screen of more than 80 columns those that would be clipped are wider.
    """
    table = [list(header), *[list(row) for row in rows]]
    limits = _widen(header, rows, widths, screen.width) if screen.width > WIDTH else widths
    for i, name in enumerate(header):
        most = limits.get(name)
        if most is not None:
            for row in table[1:]:
                row[i] = clip_text(row[i], most)
    sizes = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        cells = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for cell, size, name in zip(row, sizes, header, strict=True)
        ]
        lines.append(" ".join(cells).rstrip())
    return "\n".join([screen.heading(lines[0]), *lines[1:]])


def _widen(
    header: Sequence[str], rows: Sequence[Sequence[str]], widths: Mapping[str, int], width: int
) -> dict[str, int]:
    """Return the greatest widths after clipped columns share, in equal parts, what the table leaves of ``width``."""
    needs = [max(len(name), *(len(row[i]) for row in rows)) if rows else len(name) for i, name in enumerate(header)]
    sizes = [max(len(name), min(need, widths.get(name, need))) for name, need in zip(header, needs, strict=True)]
    spare = width - sum(sizes) - (len(sizes) - 1)
    while spare > 0 and (clipped := [i for i, size in enumerate(sizes) if size < needs[i]]):
        for i in clipped[:spare]:
            sizes[i] += 1
            spare -= 1
    return {name: max(size, widths[name]) for name, size in zip(header, sizes, strict=True) if name in widths}


def wrap_text(text: str, indent: str = "", width: int = WIDTH) -> str:
    """Wrap a paragraph to ``width`` columns, later lines indented two more; a longer word stays whole, to be copied."""
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
