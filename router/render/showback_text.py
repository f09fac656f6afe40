"""A report for terminals, chats and pull requests. Numbers are never wrapped: what does not fit is left out, and said.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from router.render.tables import WIDTH, clipped, columns, wrapped
from router.showback.report.text import UNKNOWN, printable, short
from router.showback.report.values import HIDDEN, NUMBERS, Cell, Column, Kind, Report, Section, added

# Rows of a section that people see; programs get all.
MOST = 20
_LONGEST, _SHORTEST = 22, 12
# Sums stand at the bottom, where a terminal stops.
_LAST = ("totals",)
_HEAD = ("books", "basis", "sharing", "made_from", "usage_through", "bills_through", "unpriced_rows", "utilisation")
_SUMMED = frozenset({"groups", "jobs", "waste", "movement", "corrections", "savings", "change"})
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~"})


def as_table(report: Report, width: int = WIDTH) -> str:
    """Sections that have rows, each as wide as fits; the totals last."""
    parts = [report.title, *_head(report)]
    for section in _ordered(report):
        parts += ["", section.title.upper()]
        if section.rows:
            parts += list(_table(section, width))
        parts += [wrapped(printable(note), "  ", width) for note in section.notes]
    parts.append(f"{UNKNOWN}: not known")
    return "\n".join(parts)


def as_markdown(report: Report) -> str:
    """The same, as tables of GitHub's Markdown."""
    parts = [f"## {_escaped(report.title)}", "", *(f"{_escaped(line)}  " for line in _head(report))]
    for section in _ordered(report):
        parts += ["", f"### {_escaped(section.title)}", ""]
        if section.rows:
            shown = _said(section, 1)
            rows, more = _cells(section, shown)
            names = [_escaped(column.title or column.name) for column in shown]
            ends = ["---:" if column.kind in NUMBERS else "---" for column in shown]
            lines = [names, ends, *([_escaped(cell) for cell in row] for row in rows)]
            parts += [f"| {' | '.join(line)} |" for line in lines]
            if more:
                parts += ["", f"... and {more:,} more rows"]
        parts += [f"\n{_escaped(note)}" for note in section.notes]
    return "\n".join(parts) + f"\n\n{UNKNOWN}: not known\n"


def shown_columns(section: Section) -> tuple[Column, ...]:
    """Those for people that matter most, or in which any row says something."""
    return _said(section, HIDDEN - 1)


def totalled(section: Section) -> list[tuple[Cell, ...]]:
    """A row of sums for each currency, where a section's money adds up and has several rows."""
    names = [column.name for column in section.columns]
    if section.name not in _SUMMED or "currency" not in names:
        return []
    found = []
    place = names.index("currency")
    for currency in dict.fromkeys(row[place] for row in section.rows):
        rows = [row for row in section.rows if row[place] == currency]
        if len(rows) > 1:
            sums: list[Cell] = [
                added(_money(row[n]) for row in rows) if column.kind is Kind.MONEY else None
                for n, column in enumerate(section.columns)
            ]
            sums[place] = currency
            first = next(n for n in range(len(names)) if n != place)
            sums[first] = "all"
            found.append(tuple(sums))
    return found


def _money(cell: Cell) -> Decimal | None:
    return cell if isinstance(cell, Decimal) else None


def _head(report: Report) -> Iterator[str]:
    said = {str(row[0]): str(row[1]) for row in report.section("head").rows}
    yield from (f"{name.replace('_', ' '):14} {printable(said[name])}" for name in _HEAD)
    yield from (f"warning        {printable(note)}" for note in report.section("head").notes)


def _ordered(report: Report) -> Iterator[Section]:
    some = [s for s in report.sections if s.name not in (*_LAST, "head", "days") and s.rows]
    yield from (*some, *(report.section(name) for name in _LAST))


def _said(section: Section, rank: int) -> tuple[Column, ...]:
    return tuple(
        column
        for place, column in enumerate(section.columns)
        if column.rank <= rank and (column.rank == 0 or any(row[place] is not None for row in section.rows))
    )


def _cells(section: Section, shown: Sequence[Column]) -> tuple[list[list[str]], int]:
    places = [section.columns.index(column) for column in shown]
    rows = [
        [short(row[place], column.kind) for place, column in zip(places, shown, strict=True)]
        for row in section.rows[:MOST]
    ]
    for total in totalled(section):
        cells = [
            "" if total[place] is None else short(total[place], column.kind)
            for place, column in zip(places, shown, strict=True)
        ]
        rows.append(cells)
    return rows, max(len(section.rows) - MOST, 0)


def _table(section: Section, width: int) -> Iterator[str]:
    """The columns that a reader needs most, as many as fit."""
    every = shown_columns(section)
    shown = [column for column in every if column.rank == 0] or list(every[:1])
    text, more = _drawn(section, shown)
    longest = _LONGEST
    while _wide(text) > width and len(shown) > 1:
        if longest > _SHORTEST:
            longest = _SHORTEST
        else:
            shown = shown[:-1]
        text, more = _drawn(section, shown, longest)
    for column in sorted(every, key=lambda each: each.rank):
        if column not in shown:
            wider = [each for each in every if each in shown or each is column]
            tried, _ = _drawn(section, wider, longest)
            if _wide(tried) <= width:
                shown, text = wider, tried
    yield text
    left = [column.title for column in every if column not in shown]
    if more:
        yield f"  ... and {more:,} more"
    if left:
        yield wrapped(f"left out: {', '.join(left)}; -o json has all", "  ", width)


def _wide(text: str) -> int:
    return max(map(len, text.splitlines()))


def _drawn(section: Section, shown: Sequence[Column], longest: int = _LONGEST) -> tuple[str, int]:
    rows, more = _cells(section, shown)
    names = [column.title.upper() for column in shown]
    right = frozenset(name for name, column in zip(names, shown, strict=True) if column.kind in NUMBERS)
    for row in rows:
        for place, column in enumerate(shown):
            if column.kind is Kind.TEXT:
                row[place] = clipped(row[place], longest)
    return columns(names, rows, right, {}), more


def _escaped(text: str) -> str:
    return printable(text.replace("\n", " ")).translate(_MARKDOWN)
