"""Export a report as JSON, with the schema of it. Amounts are text with all their digits. Pure."""

from __future__ import annotations

import json
from typing import Any

from router.showback.labels import LABEL
from router.showback.report.build import SECTIONS
from router.showback.report.values import (
    SCHEMA_VERSION,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    ShowbackReport,
    exact_text,
)

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
    """Return the schema as it lies in ``docs/schema``."""
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
