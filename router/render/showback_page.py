"""HTML page of a showback report without external scripts, links or fonts; it opens offline and prints. Pure.

Cells show short numbers; ``<data value="...">`` around a number has all its digits. The page's Content-Security-Policy
allows nothing but its own style, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from router.render import svg
from router.render.showback_text import select_columns, total_rows
from router.render.svg import BLUE, GREY, ORANGE
from router.render.tables import clip_text
from router.render.web_page import html_document
from router.showback.facts import UNALLOCATED
from router.showback.report.values import (
    NUMBERS,
    UNKNOWN,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    ShowbackReport,
    exact_text,
    short_text,
)

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


# Columns of a table that fit on a landscape A4 sheet.
_ON_PAPER = 13


_STYLE = """
body { max-width: 76em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin: 2em 0 0.4em }
svg { width: 100%; max-width: 46em; display: block; margin: 0.6em 0 }
.wide { overflow-x: auto }
th, td { text-align: left; padding: 0.22em 1.2em 0.22em 0; border-bottom: 1px solid #ddd; white-space: nowrap }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums }
th { font-weight: 600; vertical-align: bottom }
tr.all td { font-weight: 600; border-top: 1px solid #222 }
p.note { color: #555; font-size: 0.92em; max-width: 60em; margin: 0.4em 0 }
p.paper { display: none } figure { margin: 0.6em 0 } figcaption { color: #555 }
p.warning { border-left: 4px solid #D55E00; padding-left: 0.8em }
nav a { margin-right: 1em; white-space: nowrap }
@media print {
  body { margin: 0; font-size: 9pt } nav { display: none } .wide { overflow: visible }
  h2 { break-after: avoid } tr, svg { break-inside: avoid } thead { display: table-header-group }
  th, td { padding-right: 0.7em; white-space: normal } td.n { white-space: nowrap }
  .screen { display: none } p.paper { display: block; color: #555 }
  @page { size: A4 landscape; margin: 12mm }
}
@media (prefers-color-scheme: dark) { @media screen {
  body { background: #1b1b1b; color: #e6e6e6 } svg { background: #fff; padding: 0.5em }
  th, td { border-color: #444 } p.note { color: #aaa } tr.all td { border-color: #ccc } a { color: #8cc4ff }
} }
"""


def page(report: ShowbackReport) -> str:
    """Return a page with all sections that have rows or notes."""
    shown = [section for section in report.sections if section.rows or section.notes]
    links = " ".join(f'<a href="#{section.name}">{html.escape(section.title)}</a>' for section in shown)
    warnings = "\n".join(f'<p class="warning">{html.escape(note)}</p>' for note in report.section("head").notes)
    body = "\n".join(_section(report, section) for section in shown)
    text = html_document(
        report.title,
        _STYLE,
        f"<h1>{html.escape(report.title)}</h1>\n{warnings}\n<nav>{links}</nav>\n{body}"
        f'\n<p class="note">{UNKNOWN}: not known.</p>',
    )
    return _add_content_policy(text)


def _add_content_policy(text: str) -> str:
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256((style[1] if style else "").encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return text.replace('<meta charset="utf-8">', meta, 1)


def _section(report: ShowbackReport, section: ReportSection) -> str:
    drawn = _drawn(report, section)
    notes = (
        ""
        if section.name == "head"
        else "\n".join(f'<p class="note">{html.escape(note)}</p>' for note in section.notes)
    )
    table = _table(section) if section.rows else ""
    return f'<section>\n<h2 id="{section.name}">{html.escape(section.title)}</h2>\n{drawn}{table}{notes}\n</section>'


def _drawn(report: ShowbackReport, section: ReportSection) -> str:
    draw = {
        "days": daily_chart,
        "groups": group_chart,
        "waste": waste_chart,
        "change": change_chart,
    }.get(section.name)
    currencies = [str(row["currency"]) for row in report.section("totals").records()]
    pictures_of = {} if draw is None else {c: picture for c in currencies if (picture := draw(report, c))}
    return "".join(
        f"<figure><figcaption>{html.escape(currency)}</figcaption>\n{picture}</figure>\n"
        for currency, picture in pictures_of.items()
    )


def _table(section: ReportSection) -> str:
    columns = select_columns(section)
    places = [section.columns.index(column) for column in columns]
    wide = _not_on_paper(columns)
    head = "".join(f'<th{_class(c, wide)} scope="col">{html.escape(c.title)}</th>' for c in columns)
    kinds = [(_class(column, wide), column.kind) for column in columns]
    rows = [_row([row[place] for place in places], kinds, "") for row in section.rows]
    rows += [_row([row[place] for place in places], kinds, "all") for row in total_rows(section)]
    lines = "\n".join(rows)
    missing = f'<p class="paper">Not on paper: {html.escape(", ".join(c.title for c in wide))}.</p>\n' if wide else ""
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>"
    return f'<div class="wide">{table}</div>\n{missing}'


def _not_on_paper(columns: Sequence[ReportColumn]) -> tuple[ReportColumn, ...]:
    """Return the least important columns, those beyond what fits on a sheet."""
    ranked = sorted(columns, key=lambda column: column.rank)
    return tuple(column for column in columns if column in ranked[_ON_PAPER:])


def _row(cells: list[CellValue], columns: list[tuple[str, CellKind]], kind: str) -> str:
    cells_html = "".join(
        [
            f"<td{opened}>{'' if kind and cell is None else _cell(cell, c)}</td>"
            for cell, (opened, c) in zip(cells, columns, strict=True)
        ]
    )
    return f'<tr class="{kind}">{cells_html}</tr>' if kind else f"<tr>{cells_html}</tr>"


def _cell(cell: CellValue, kind: CellKind) -> str:
    if kind in NUMBERS and cell is not None:  # nothing in a number is to be escaped
        return f'<data value="{exact_text(cell)}">{short_text(cell, kind)}</data>'
    return html.escape(short_text(cell, kind))


def _class(column: ReportColumn, wide: Sequence[ReportColumn]) -> str:
    classes = [*(["n"] if column.kind in NUMBERS else []), *(["screen"] if column in wide else [])]
    return f' class="{" ".join(classes)}"' if classes else ""
