"""Export a report as JSON, with the schema of it, and as one tidy table: CSV, Parquet, a workbook of sections.

The table has a row for each row of a section, and a column for each that any section has, empty where it is none of the
section's. The first column is the section. Notes of sections are in rows of the section ``notes``: ``name`` is the
section, ``value`` the note. Text is kept from being a formula in CSV and the workbook, not in Parquet.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from router.files.csv_text import csv_text, escape_formula
from router.showback.labels import LABEL
from router.showback.report.build import SECTIONS, collect_columns
from router.showback.report.values import (
    NUMBERS,
    SCHEMA_VERSION,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    ShowbackReport,
    exact_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

SECTION, NOTES = "section", "notes"
_FORMATS = {
    CellKind.MONEY: "#,##0.00",
    CellKind.RATE: "#,##0.00####",
    CellKind.AMOUNT: "#,##0.##",
    CellKind.SHARE: "0.0%",
    CellKind.COUNT: "#,##0",
    CellKind.DAY: "yyyy-mm-dd",
    CellKind.MOMENT: "yyyy-mm-dd hh:mm:ss",
}
_WIDEST, _NARROWEST = 48, 9
# The longest name of a sheet.
_SHEET = 31


def report_to_csv(report: ShowbackReport) -> str:
    """Return CSV: numbers with all digits and no separators, moments in UTC.

    Every report has the same columns, and after them one for each label of its groups.
    """
    columns = collect_columns(report)
    rows = (
        [name, *(_safe_text(row.get(key), column) for key, column in columns.items())] for name, row in _rows(report)
    )
    return csv_text([SECTION, *columns], rows)


def _safe_text(cell: CellValue, column: ReportColumn) -> str:
    # A team may be called -1.
    return escape_formula(exact_text(cell)) if column.kind is CellKind.TEXT else exact_text(cell)


def report_to_parquet(report: ShowbackReport) -> bytes:
    """Return Parquet: money is decimal128 with 24 places, quantities have 18, quotients 9."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, rows = collect_columns(report), list(_rows(report))
    arrays = [pa.array([name for name, _ in rows], pa.string())]
    arrays += [pa.array([row.get(name) for _, row in rows], _arrow(column.kind)) for name, column in columns.items()]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, names=[SECTION, *columns]), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def report_to_workbook(report: ShowbackReport, now: datetime) -> bytes:
    """Return a workbook, created at ``now`` as it says. Of its numbers a spreadsheet keeps fifteen digits."""
    import xlsxwriter

    content = io.BytesIO()
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False, "in_memory": True}
    with xlsxwriter.Workbook(content, options) as book:
        book.set_properties({"title": report.title, "created": now.replace(tzinfo=None)})
        formats = {kind: book.add_format({"num_format": text}) for kind, text in _FORMATS.items()}
        bold = book.add_format({"bold": True, "bottom": 1})
        for section in report.sections:
            _sheet(book.add_worksheet(section.title[:_SHEET]), section, formats, bold)
        notes = book.add_worksheet("Notes")
        notes.write_row(0, 0, ["Section", "Note"], bold)
        rows = ((section.title, note) for section in report.sections for note in section.notes)
        for number, (title, note) in enumerate(rows, 1):
            notes.write_string(number, 0, title)
            notes.write_string(number, 1, escape_formula(note))
        notes.set_column(0, 0, _WIDEST // 2)
    return content.getvalue()


def _rows(report: ShowbackReport) -> Iterator[tuple[str, dict[str, CellValue]]]:
    for section in report.sections:
        for row in section.records():
            yield section.name, row
    for section in report.sections:
        for note in section.notes:
            yield NOTES, {"name": section.name, "value": note}


def _arrow(kind: CellKind) -> pa.DataType:
    import pyarrow as pa

    return {
        CellKind.TEXT: pa.string(),
        CellKind.MONEY: pa.decimal128(38, 24),
        CellKind.AMOUNT: pa.decimal128(38, 18),
        CellKind.RATE: pa.decimal128(38, 9),
        CellKind.SHARE: pa.decimal128(38, 9),
        CellKind.COUNT: pa.int64(),
        CellKind.FLAG: pa.bool_(),
        CellKind.DAY: pa.date32(),
        CellKind.MOMENT: pa.timestamp("us", tz="UTC"),
    }[kind]


def _sheet(sheet: Any, section: ReportSection, formats: dict[CellKind, Any], bold: Any) -> None:
    sheet.write_row(0, 0, [column.title or column.name for column in section.columns], bold)
    sheet.freeze_panes(1, 0)
    for place, column in enumerate(section.columns):
        style, longest = formats.get(column.kind), len(column.title)
        for number, row in enumerate(section.rows, 1):
            longest = max(longest, len(_put(sheet, number, place, row[place], column.kind, style)))
        sheet.set_column(place, place, min(max(longest + 1, _NARROWEST), _WIDEST))
    if section.rows:
        sheet.autofilter(0, 0, len(section.rows), len(section.columns) - 1)
    sheet.set_landscape()
    sheet.repeat_rows(0)
    sheet.fit_to_pages(1, 0)


def _put(sheet: Any, row: int, place: int, cell: CellValue, kind: CellKind, style: Any) -> str:
    """Write a cell, and return text about as wide as it."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        sheet.write_boolean(row, place, cell)
    elif kind in NUMBERS and isinstance(cell, Decimal | int):
        sheet.write_number(row, place, cell, style)
        return f"{cell:,.2f}"
    elif isinstance(cell, datetime):
        sheet.write_datetime(row, place, cell.replace(tzinfo=None), style)
    elif isinstance(cell, date):
        sheet.write_datetime(row, place, datetime(cell.year, cell.month, cell.day), style)  # noqa: DTZ001
    else:
        sheet.write_string(row, place, escape_formula(exact_text(cell)))
    return exact_text(cell)


_JSON_KINDS = frozenset({CellKind.COUNT, CellKind.FLAG})
_DECIMAL = r"^-?\d+(\.\d+)?$"
_LABELS = f"^{LABEL}."
_TYPES: dict[CellKind, dict[str, Any]] = {
    CellKind.TEXT: {"type": ["string", "null"]},
    CellKind.COUNT: {"type": ["integer", "null"]},
    CellKind.FLAG: {"type": ["boolean", "null"]},
    CellKind.DAY: {"type": ["string", "null"], "format": "date"},
    CellKind.MOMENT: {"type": ["string", "null"], "format": "date-time"},
}


def report_to_json(report: ShowbackReport) -> str:
    """Return ``sections`` by name, each with its title, its notes, its columns, and its rows by column."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "title": report.title,
        "sections": {section.name: _section(section) for section in report.sections},
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _section(section: ReportSection) -> dict[str, Any]:
    kinds = {column.name: column.kind for column in section.columns}
    return {
        "title": section.title,
        "notes": list(section.notes),
        "columns": [{"name": c.name, "title": c.title, "kind": c.kind.value} for c in section.columns],
        "rows": [{name: _value(cell, kinds[name]) for name, cell in row.items()} for row in section.records()],
    }


def _value(cell: CellValue, kind: CellKind) -> Any:
    return cell if cell is None or kind in _JSON_KINDS else exact_text(cell)


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of :func:`report_to_json`."""
    sections = {name: _schema_of(columns, labels=name == "groups") for name, columns in SECTIONS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A showback report of stepfare",
        "description": "null is not known, never zero. Amounts are text with all their digits; shares are of 1.",
        "type": "object",
        "required": ["schema_version", "title", "sections"],
        "additionalProperties": False,
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "title": {"type": "string"},
            "sections": {
                "type": "object",
                "required": list(sections),
                "additionalProperties": False,
                "properties": sections,
            },
        },
    }


def report_schema_text() -> str:
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


def _schema_of(columns: tuple[ReportColumn, ...], *, labels: bool) -> dict[str, Any]:
    names: dict[str, Any] = {"enum": [column.name for column in columns]}
    column = {
        "type": "object",
        "required": ["name", "title", "kind"],
        "additionalProperties": False,
        "properties": {
            "name": {"anyOf": [names, {"pattern": _LABELS}]} if labels else names,
            "title": {"type": "string"},
            "kind": {"enum": sorted(kind.value for kind in CellKind)},
        },
    }
    properties = {
        c.name: {"title": c.title, **_TYPES.get(c.kind, {"type": ["string", "null"], "pattern": _DECIMAL})}
        for c in columns
    }
    row: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if labels:
        row["patternProperties"] = {_LABELS: {"type": ["string", "null"]}}
    return {
        "type": "object",
        "required": ["title", "notes", "columns", "rows"],
        "additionalProperties": False,
        "properties": {
            "title": {"type": "string"},
            "notes": {"type": "array", "items": {"type": "string"}},
            "columns": {"type": "array", "items": column},
            "rows": {"type": "array", "items": row},
        },
    }
