"""Reports of facts by hand, and what each format says when it is read again."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

from router.files.duckdb_session import connect
from router.ledger.month import Month
from router.render.showback_page import page
from router.render.showback_text import as_markdown, as_wide
from router.showback.report.build import build_report
from router.showback.report.export import (
    NOTES,
    SECTION,
    report_to_csv,
    report_to_json,
    report_to_parquet,
    report_to_workbook,
)
from router.showback.report.query import ReportInputs, ReportQuery
from router.showback.report.rollup_tables import NO_CUTS, PlannedCuts, report_months, rollups_of_facts
from router.showback.report.values import NUMBERS, CellKind, ReportSection, ShowbackReport
from tests.support.reconciled import facts

OVER = datetime(2026, 12, 2, tzinfo=UTC)
NOVEMBER = Month(2026, 11)
BESIDE = ReportInputs(origin="by hand", input_hash="0" * 16)
Rows = list[dict[str, str]]


def report_of(
    table: pa.Table, *, beside: ReportInputs = BESIDE, cuts: PlannedCuts = NO_CUTS, **asked: Any
) -> ShowbackReport:
    """Report facts for November 2026, as of its end, by team, where nothing else is asked."""
    given = ReportQuery(**{"month": NOVEMBER, "now": OVER, **asked})
    with connect() as connection:
        connection.register("facts", table)
        rollups = rollups_of_facts(connection, "facts", report_months(given.month), given.now, cuts)
        return build_report(rollups, given, beside)


def report_of_rows(rows: Iterable[dict[str, Any]], **asked: Any) -> ShowbackReport:
    """Of facts as :func:`tests.support.reconciled.facts` takes them."""
    return report_of(facts(rows), **asked)


def cost(amount: str, **said: Any) -> dict[str, Any]:
    """A fact that cost so much, on both bases."""
    return {"billed": Decimal(amount), "effective": Decimal(amount), **said}


def rows_of(report: ShowbackReport, section: str, **wanted: object) -> list[dict[str, Any]]:
    """The rows of a section that say so."""
    return [
        row for row in report.section(section).records() if all(row[name] == value for name, value in wanted.items())
    ]


def one(report: ShowbackReport, section: str, **wanted: object) -> dict[str, Any]:
    (row,) = rows_of(report, section, **wanted)
    return row


def exact_rows(report: ShowbackReport) -> dict[str, Iterator[tuple[str, Rows]]]:
    """By format that keeps all digits: each section's rows as text by column name, "" for what is not known; read
    with what we did not write."""
    return {
        "json": _of_json(report),
        "csv": _of_csv(report),
        "parquet": _of_parquet(report),
        "xlsx": _of_xlsx(report),
        "html": _of_html(report),
    }


def short_forms(report: ShowbackReport) -> dict[str, str]:
    """Formats with all sections whose money is to the cent."""
    return {"wide": as_wide(report), "markdown": as_markdown(report)}


def plain(value: object) -> str:
    """A number without zeros at its end; text as it is."""
    text = "" if value is None else str(value)
    try:
        number = Decimal(text)
    except ArithmeticError:
        return text
    return f"{number.normalize():f}" if number else "0"


def _of_json(report: ShowbackReport) -> Iterator[tuple[str, Rows]]:
    for name, section in json.loads(report_to_json(report))["sections"].items():
        yield name, [{key: plain(value) for key, value in row.items()} for row in section["rows"]]


def _of_csv(report: ShowbackReport) -> Iterator[tuple[str, Rows]]:
    rows = list(csv.DictReader(io.StringIO(report_to_csv(report), newline="")))
    yield from _by_section(report, [{name: plain(cell) for name, cell in row.items()} for row in rows])


def _of_parquet(report: ShowbackReport) -> Iterator[tuple[str, Rows]]:
    rows = pq.read_table(io.BytesIO(report_to_parquet(report))).to_pylist()
    yield from _by_section(report, [{name: plain(cell) for name, cell in row.items()} for row in rows])


def _by_section(report: ShowbackReport, rows: Rows) -> Iterator[tuple[str, Rows]]:
    for section in report.sections:
        names = [column.name for column in section.columns]
        found = [row for row in rows if row[SECTION] == section.name]
        yield section.name, [{name: row[name] for name in names} for row in found]
    assert {row[SECTION] for row in rows} <= {*(section.name for section in report.sections), NOTES}


def _of_xlsx(report: ShowbackReport) -> Iterator[tuple[str, Rows]]:
    book = openpyxl.load_workbook(io.BytesIO(report_to_workbook(report, OVER)))
    for section in report.sections:
        _, *lines = book[section.title[:31]].iter_rows(values_only=True)
        # A sheet has its numbers as binary fractions: what they were, where they have fifteen digits at most.
        yield (
            section.name,
            [{column.name: plain(cell) for column, cell in zip(section.columns, line, strict=False)} for line in lines],
        )


def _of_html(report: ShowbackReport) -> Iterator[tuple[str, Rows]]:
    reader = _Tables()
    reader.feed(page(report))
    for section in report.sections:
        head, *lines = reader.tables.get(section.name, [[]])
        by_title = {column.title or "Value": column for column in section.columns}
        columns = [by_title[title] for title in head]
        yield (
            section.name,
            [
                {column.name: plain("" if cell == "-" else cell) for column, cell in zip(columns, line, strict=True)}
                for line in lines
            ],
        )


class _Tables(HTMLParser):
    """The tables of a page by the id of their heading: cells as text, numbers with all their digits. Rows of sums are
    left out."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self._name, self._in, self._summed = "", False, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "h2":
            self._name = said["id"] or ""
        elif tag == "tr":
            self._summed = said.get("class") == "all"
            if not self._summed:
                self.tables.setdefault(self._name, []).append([])
        elif tag in ("td", "th") and not self._summed:
            self._in = True
            self.tables[self._name][-1].append("")
        elif tag == "data" and self._in:
            self.tables[self._name][-1][-1] = said["value"] or ""
            self._in = False

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in = False

    def handle_data(self, data: str) -> None:
        if self._in:
            self.tables[self._name][-1][-1] += data


def numbers_of(section: ReportSection) -> list[str]:
    """The names of the columns that hold numbers, money and counts."""
    return [column.name for column in section.columns if column.kind in NUMBERS and column.kind is not CellKind.SHARE]
