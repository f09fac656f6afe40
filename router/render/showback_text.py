"""Showback reports as text and Markdown, and the use of budgets as text, CSV and JSON.

Numbers are never wrapped: columns that do not fit are omitted and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial

from pricing.units import format_count
from router.ledger.budget import BudgetStatus
from router.render.month_answer import Words, change_sentence, month_sentence, month_tiles, plain_words
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.render.showback_view import MonthPage, month_page_of
from router.render.tables import (
    PLAIN,
    WIDTH,
    Screen,
    clip_text,
    escape_markdown,
    format_table,
    format_timestamp,
    format_usd,
    markdown_table,
    wrap_text,
)
from router.showback.apportion import sum_known
from router.showback.report.values import (
    HIDDEN,
    UNKNOWN,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    ShowbackReport,
    replace_unprintable,
    short_text,
)

# Rows of a section that a terminal shows; a pipe or file gets all that are asked for with wide.
MOST = 20
_LONGEST, _SHORTEST = 22, 12
# The totals come last, where they stay visible in a terminal.
_LAST = ("totals",)
_HEAD = ("books", "basis", "sharing", "made_from", "usage_through", "bills_through", "unpriced_rows", "utilisation")
_MOMENTS = frozenset({"usage_through", "bills_through"})
_SUMMED = frozenset({"groups", "jobs", "waste", "movement", "corrections", "savings", "change"})


def as_table(report: ShowbackReport, screen: Screen = PLAIN) -> str:
    """Return the answer of the month: a sentence, its tiles, and the groups with their sum."""
    month = month_page_of(report)
    warnings = _warnings(report)
    if month is None:
        what = f"Nothing is spent in the books of {report.title.split()[-1]}"
        if report.section("jobs").rows:
            remark = f"{what} yet; -o wide has what was planned."
        else:
            remark = f"{what}, and nothing planned; `stepfare ledger periods` lists the months that have something."
        return "\n".join([report.title, *warnings, wrap_text(remark, width=screen.width)])
    head = f"{report.title}: books {report.head['books']}, {month.bills_through}, {report.basis} cost"
    parts = [screen.heading(head), *warnings, "", _paragraph(month_sentence(month), screen)]
    if change := change_sentence(month):
        parts.append(_paragraph(change, screen))
    parts += ["", *_tiles(month, screen)]
    groups = report.section("groups")
    if groups.rows:
        parts += ["", groups.title.upper(), *_table(groups, screen)]
    unpriced = report.head["unpriced_rows"]
    if unpriced != "0":
        parts.append(f"{format_count(int(unpriced), 'row')} without a known price: in no sum")
    parts.append("-o wide: why, bridge, jobs, waste, savings and the rest; -o html: a page")
    return "\n".join(parts)


def _paragraph(words: Words, screen: Screen) -> str:
    return wrap_text(replace_unprintable(plain_words(words)), width=screen.width)


def _tiles(month: MonthPage, screen: Screen) -> Iterator[str]:
    """Yield a line for each figure of the month, its remark below it where both do not fit."""
    tiles = month_tiles(month)
    values = [f"{plain_words(tile.value)} {tile.tag}".rstrip() for tile in tiles]
    title, value = max(len(tile.title) for tile in tiles), max(map(len, values))
    for tile, figure in zip(tiles, values, strict=True):
        line = f"{tile.title:{title}}  {figure:>{value}}  {replace_unprintable(plain_words(tile.note))}"
        yield wrap_text(line, width=screen.width).replace("\n  ", "\n" + " " * (title + value + 4))


def as_wide(report: ShowbackReport, screen: Screen = PLAIN) -> str:
    """Return the sections that have rows, each as wide as fits; the totals come last.

    A terminal gets the first rows of a section, a pipe or file all.
    """
    most = None if screen is PLAIN else MOST
    parts = [report.title, *_head(report)]
    for section in _ordered(report):
        parts += ["", section.title.upper()]
        if section.rows:
            parts += list(_table(section, screen, most))
        parts += [wrap_text(replace_unprintable(note), "  ", screen.width) for note in section.notes]
    parts.append(f"{UNKNOWN}: not known")
    return "\n".join(parts)


def as_markdown(report: ShowbackReport) -> str:
    """Return the same as tables of GitHub's Markdown."""
    parts = [f"## {escape_markdown(report.title)}", "", *(f"{escape_markdown(line)}  " for line in _head(report))]
    for section in _ordered(report):
        parts += ["", f"### {escape_markdown(section.title)}", ""]
        if section.rows:
            shown = _visible_columns(section, 1)
            rows, more = _cells(section, shown, MOST)
            names = [column.title or column.name for column in shown]
            right = {name for name, column in zip(names, shown, strict=True) if column.is_number}
            parts.append(markdown_table(names, rows, right))
            if more:
                parts += ["", f"... and {format_count(more, 'more row')}"]
        parts += [f"\n{escape_markdown(note)}" for note in section.notes]
    return "\n".join(parts) + f"\n\n{UNKNOWN}: not known\n"


def select_columns(section: ReportSection) -> tuple[ReportColumn, ...]:
    """Return the most important columns for people, and others in which any row has a value."""
    return _visible_columns(section, HIDDEN - 1)


def total_rows(section: ReportSection) -> list[tuple[CellValue, ...]]:
    """Return a row of sums for each currency with several rows, if the money of the section adds up."""
    names = [column.name for column in section.columns]
    if section.name not in _SUMMED or "currency" not in names:
        return []
    totals = []
    place = names.index("currency")
    for currency in dict.fromkeys(row[place] for row in section.rows):
        rows = [row for row in section.rows if row[place] == currency]
        if len(rows) > 1:
            sums: list[CellValue] = [
                sum_known(_money(row[n]) for row in rows) if column.kind is CellKind.MONEY else None
                for n, column in enumerate(section.columns)
            ]
            sums[place] = currency
            first = next(n for n in range(len(names)) if n != place)
            sums[first] = "all"
            totals.append(tuple(sums))
    return totals


def _money(cell: CellValue) -> Decimal | None:
    return cell if isinstance(cell, Decimal) else None


def _head(report: ShowbackReport) -> Iterator[str]:
    values = report.head
    yield from (f"{name.replace('_', ' '):14} {_head_words(name, values[name])}" for name in _HEAD)
    yield from _warnings(report)


def _head_words(name: str, text: str) -> str:
    """Return a value of the report's head for people: moments as tables have them."""
    if name not in _MOMENTS or not text[:1].isdigit():
        return replace_unprintable(text)
    return format_timestamp(datetime.fromisoformat(text))


def _warnings(report: ShowbackReport) -> list[str]:
    return [f"warning        {replace_unprintable(note)}" for note in report.section("head").notes]


def _ordered(report: ShowbackReport) -> Iterator[ReportSection]:
    filled = [s for s in report.sections if s.name not in (*_LAST, "head", "days") and s.rows]
    yield from (*filled, *(report.section(name) for name in _LAST))


def _visible_columns(section: ReportSection, rank: int) -> tuple[ReportColumn, ...]:
    return tuple(
        column
        for place, column in enumerate(section.columns)
        if column.rank <= rank and (column.rank == 0 or any(row[place] is not None for row in section.rows))
    )


def _cells(section: ReportSection, shown: Sequence[ReportColumn], max_rows: int | None) -> tuple[list[list[str]], int]:
    """Return the cells of the first rows (``max_rows`` None: of all) and of the sums, and how many rows are left."""
    places = [section.columns.index(column) for column in shown]
    rows = [
        [short_text(row[place], column.kind) for place, column in zip(places, shown, strict=True)]
        for row in section.rows[:max_rows]
    ]
    for total in total_rows(section):
        cells = [
            "" if total[place] is None else short_text(total[place], column.kind)
            for place, column in zip(places, shown, strict=True)
        ]
        rows.append(cells)
    return rows, 0 if max_rows is None else max(len(section.rows) - max_rows, 0)


def _table(section: ReportSection, screen: Screen, max_rows: int | None = MOST) -> Iterator[str]:
    """Yield the table with as many of the most important columns as fit, and notes on what is omitted."""
    every, width, draw = select_columns(section), screen.width, partial(_draw, section, max_rows)
    shown = [column for column in every if column.rank == 0] or list(every[:1])
    text, more = draw(shown)
    longest = _LONGEST
    while _text_width(text) > width and len(shown) > 1:
        if longest > _SHORTEST:
            longest = _SHORTEST
        else:
            shown = shown[:-1]
        text, more = draw(shown, longest)
    for column in sorted(every, key=lambda column: column.rank):
        if column not in shown:
            wider = [each for each in every if each in shown or each is column]
            wider_text, _ = draw(wider, longest)
            if _text_width(wider_text) <= width:
                shown, text = wider, wider_text
    if width > WIDTH:
        wider_text, _ = draw(shown, 2 * longest)
        while text != wider_text and _text_width(wider_text) <= width:
            text, longest = wider_text, 2 * longest
            wider_text, _ = draw(shown, 2 * longest)
    heading, end, lines = text.partition("\n")
    yield f"{screen.heading(heading)}{end}{lines}"
    omitted = [column.title for column in every if column not in shown]
    if more:
        yield f"  ... and {more:,} more"
    if omitted:
        yield wrap_text(f"left out: {', '.join(omitted)}; -o json has all", "  ", width)


def _text_width(text: str) -> int:
    return max(map(len, text.splitlines()))


def _draw(
    section: ReportSection, max_rows: int | None, shown: Sequence[ReportColumn], longest: int = _LONGEST
) -> tuple[str, int]:
    rows, more = _cells(section, shown, max_rows)
    names = [column.title.upper() for column in shown]
    right = frozenset(name for name, column in zip(names, shown, strict=True) if column.is_number)
    for row in rows:
        for place, column in enumerate(shown):
            if column.kind is CellKind.TEXT:
                row[place] = clip_text(row[place], longest)
    return format_table(names, rows, right, {}), more


def standing_table(standings: Sequence[BudgetStatus], basis: str) -> RecordTable[BudgetStatus]:
    """Return the table of the use of budgets; without any, its data have the fields of their names alone."""
    names: tuple[TableColumn[BudgetStatus], ...] = (
        TableColumn("scope", lambda status: status.budget.scope.value),
        TableColumn("name", lambda status: status.budget.name),
    )
    use: tuple[TableColumn[BudgetStatus], ...] = (
        TableColumn("usd", lambda status: status.usd, "BUDGET", format_usd, right=True),
        TableColumn("hard", lambda status: status.budget.hard, csv=str),
        TableColumn("spent_usd", lambda status: status.spent, "SPENT", format_usd, right=True),
        TableColumn("running_usd", lambda status: status.running, "RUNNING", format_usd, right=True),
        TableColumn("", format_used_share, "USED", right=True),
        TableColumn("percent", lambda status: status.percent),
        TableColumn("used_share", lambda status: status.share),
        TableColumn("forecast_usd", lambda status: status.forecast, "FORECAST", format_usd, right=True),
        *attribute_columns("passed"),
        TableColumn("over", lambda status: status.is_over, csv=str),
        TableColumn("will_be_over", lambda status: status.will_be_over, csv=str),
        TableColumn("basis", lambda _: basis),
        TableColumn("currency", lambda _: "USD"),
        TableColumn("", _budget_state, "STATE"),
    )
    title: TableColumn[BudgetStatus] = TableColumn(
        "", lambda status: replace_unprintable(status.budget.title)[:28], "BUDGET OF"
    )
    return RecordTable((*names, title, *use) if standings else names)


def format_used_share(status: BudgetStatus) -> str:
    """Return the used share of a budget as a report writes it."""
    return "" if status.share is None else short_text(status.share, CellKind.SHARE)


def _budget_state(status: BudgetStatus) -> str:
    if status.is_over:
        return "OVER, hard" if status.budget.hard else "over"
    if status.will_be_over:
        return "will be over"
    return f"past {status.passed[-1]} %" if status.passed else "fine"
