"""Write cells as text: exact for programs, short for people, and harmless in a spreadsheet. Pure."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Context, Decimal

from router.showback.report.values import CellKind, CellValue

UNKNOWN = "-"
# Characters that begin a formula in a spreadsheet, in their full-width forms too (OWASP ASVS 1.2.10).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_WIDE = Context(prec=100)
_CENT = Decimal("0.01")


def exact_text(cell: CellValue) -> str:
    """Return all digits; moments as ``2026-11-01T00:00:00Z``; empty for an unknown value."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, Decimal):
        return f"{cell:f}"
    if isinstance(cell, datetime):
        text = f"{cell:%Y-%m-%dT%H:%M:%S}"
        return f"{text}.{cell.microsecond:06}Z" if cell.microsecond else f"{text}Z"
    return cell.isoformat() if isinstance(cell, date) else str(cell)


def escape_formula(text: str) -> str:
    """Return the text such that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def short_text(cell: CellValue, kind: CellKind) -> str:
    """Return text for people: money to the cent, but never 0.00 for a nonzero amount; unknown is ``-``."""
    if cell is None:
        return UNKNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Decimal):
        return _number(cell, kind)
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, datetime):
        return f"{cell:%Y-%m-%d %H:%M}"
    return cell.isoformat() if isinstance(cell, date) else replace_unprintable(cell)


def replace_unprintable(text: str) -> str:
    """Return the text with nothing in it that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _number(value: Decimal, kind: CellKind) -> str:
    if kind is CellKind.SHARE:
        return f"{_WIDE.multiply(value, Decimal(100)).quantize(Decimal('0.1'), context=_WIDE)}%"
    if kind is CellKind.AMOUNT and value == value.to_integral_value(context=_WIDE):
        return f"{value:,.0f}"
    if value and abs(value) < _CENT:
        return f"{value:.2g}" if abs(value) >= Decimal("0.0001") else f"{value:.1e}"
    return f"{value:,.2f}"
