"""Words and columns for people: money, times, tables that fit a width. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from pricing.money import Usd

WIDTH = 80
MARKETS = {"on_demand": "od", "spot": "spot", "reserved": "rsv"}


def dollars(amount: Usd) -> str:
    """``$1,234.56``, to the cent."""
    sign = "-" if amount.nanos < 0 else ""
    return f"{sign}${Decimal(abs(amount.nanos)).scaleb(-9):,.2f}"


def small_dollars(amount: Usd | None) -> str:
    """A price of a step: three significant digits, no exponent; empty when there is none."""
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


def when(moment: datetime | None) -> str:
    """``21 18:00`` (UTC, the day of the month)."""
    return moment.strftime("%d %H:%M") if moment else ""


def stamp(moment: datetime) -> str:
    """``2026-11-21 18:00Z``."""
    return moment.strftime("%Y-%m-%d %H:%MZ")


def clipped(text: str, width: int) -> str:
    """At most ``width`` characters, an ellipsis in the middle of what does not fit."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str], widths: dict[str, int]) -> str:
    """A plain table: two-space gaps where there is room, ``widths`` the most a column may take."""
    table = [list(header), *[list(row) for row in rows]]
    for i, name in enumerate(header):
        most = widths.get(name)
        if most is not None:
            for row in table[1:]:
                row[i] = clipped(row[i], most)
    sizes = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        cells = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for cell, size, name in zip(row, sizes, header, strict=True)
        ]
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)


def wrapped(text: str, indent: str = "", width: int = WIDTH) -> str:
    """Wrap a paragraph to ``width`` columns, later lines indented two more; a longer word stays whole, to be copied."""
    import textwrap

    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
