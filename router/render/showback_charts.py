"""Charts of a showback report: costs by day and group, waste, reasons of change. Pure; tables hold the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from router.render import svg
from router.render.svg import BLUE, GREY, ORANGE
from router.render.tables import clip_text
from router.showback.facts import UNALLOCATED
from router.showback.report.text import short_text
from router.showback.report.values import CellKind, CellValue, ReportSection, ShowbackReport

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 90, 16, 30
_ROW, _NAMES, _MOST, _LETTERS = 22, 200, 12, 28


def daily_chart(report: ShowbackReport, currency: str) -> str:
    """Return the costs by day; empty for fewer than two days."""
    rows = [row for row in report.section("days").records() if row["currency"] == currency]
    basis = _basis(report)
    points = [(row["day"], row[basis]) for row in rows]
    daily = [(day, float(cost)) for day, cost in points if isinstance(day, date) and isinstance(cost, Decimal)]
    if len(daily) < 2:
        return ""
    first, last = min(day for day, _ in daily), max(day for day, _ in daily)
    top, low = max(max(cost for _, cost in daily), 0.01), min(0.0, *(cost for _, cost in daily))
    step = (_WIDTH - _LEFT - _RIGHT) / ((last - first).days + 1)
    scale = (_HEIGHT - _TOP - _BOTTOM) / (top - low)
    ground = _HEIGHT - _BOTTOM + low * scale
    parts = [
        f'<rect x="{_LEFT + (day - first).days * step:.1f}" y="{ground - max(cost, 0) * scale:.1f}" '
        f'width="{max(step - 2, 1):.1f}" height="{abs(cost) * scale:.1f}" fill="{BLUE}"/>'
        for day, cost in daily
    ]
    parts += [
        svg.text(_LEFT - 6, _TOP + 8, f"{top:,.0f}", "end"),
        svg.text(_LEFT - 6, ground, "0", "end"),
        svg.text(_LEFT, _HEIGHT - 10, first.isoformat()),
        svg.text(_WIDTH - _RIGHT, _HEIGHT - 10, last.isoformat(), "end"),
    ]
    return svg.picture(f"{currency} a day", _WIDTH, _HEIGHT, parts)


def group_chart(report: ShowbackReport, currency: str) -> str:
    """Return a bar for each of the largest groups."""
    section = report.section("groups")
    names = [column.name for column in section.columns]
    keys = names[: names.index("currency")]
    return _bars(f"By {', '.join(keys)}", _labelled(section, keys, "after", currency), currency)


def waste_chart(report: ShowbackReport, currency: str) -> str:
    """Return a bar for each kind of waste."""
    return _bars("Waste", _labelled(report.section("waste"), ["use"], _basis(report), currency), currency, ORANGE)


def change_chart(report: ShowbackReport, currency: str) -> str:
    """Return a bar for each reason of the change from last month."""
    return _bars("Change on last month", _labelled(report.section("change"), ["bucket"], "amount", currency), currency)


def _basis(report: ShowbackReport) -> str:
    head = {row["name"]: str(row["value"]) for row in report.section("head").records()}
    return head["basis"].split()[0]


def _labelled(section: ReportSection, keys: Sequence[str], amount: str, currency: str) -> list[tuple[str, Decimal]]:
    found = []
    for row in section.records():
        cost: CellValue = row[amount]
        if row["currency"] == currency and isinstance(cost, Decimal):
            names = [short_text(row[key], CellKind.TEXT) for key in keys]
            found.append((UNALLOCATED if set(names) == {UNALLOCATED} else " / ".join(names), cost))
    return found


def _bars(title: str, rows: list[tuple[str, Decimal]], currency: str, colour: str = BLUE) -> str:
    if not rows:
        return ""
    largest = sorted(rows, key=lambda row: -abs(row[1]))[:_MOST]
    low, high = min(Decimal(0), *(cost for _, cost in largest)), max(Decimal(0), *(cost for _, cost in largest))
    scale = (_WIDTH - _NAMES - _RIGHT - _LEFT) / (float(high - low) or 1.0)
    zero = _NAMES + (_LEFT if low < 0 else 8) + float(-low) * scale
    parts = []
    for number, (name, cost) in enumerate(largest):
        y, wide = number * _ROW + 6, abs(float(cost)) * scale
        x = zero if cost >= 0 else zero - wide
        parts += [
            svg.text(_NAMES, y + 12, clip_text(name, _LETTERS), "end"),
            _bar(x, y, wide, colour if cost >= 0 else GREY),
            svg.text(
                zero + wide + 6 if cost >= 0 else x - 6,
                y + 12,
                short_text(cost, CellKind.MONEY),
                "start" if cost >= 0 else "end",
            ),
        ]
    return svg.picture(f"{title}, {currency}", _WIDTH, len(largest) * _ROW + 12, parts)


def _bar(x: float, y: float, wide: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{max(wide, 0.5):.1f}" height="{_ROW - 8}" fill="{colour}"/>'
