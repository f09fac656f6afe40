"""Command ``stepfare ledger check``: validate a FOCUS file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.bills import BillFormat
from router.cli.console import ExitCode
from router.render.tables import format_count

if TYPE_CHECKING:
    from router.showback.focus.check import FocusCheck

SCHEMA_VERSION = 1
_DECEMBER = 12


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, CSV in gzip, or Parquet; FOCUS 1.0 to 1.4.")],
    closed_through: Annotated[
        str | None,
        typer.Option(
            metavar="MONTH", help="Last closed month, such as 2026-10: corrections of later months are errors."
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="Findings to show per rule and column.")] = 20,
    output: Annotated[BillFormat, typer.Option("--output", "-o", help="Format.")] = BillFormat.TABLE,
) -> ExitCode:
    """Validate a FOCUS Cost and Usage file against the rules of FOCUS and of the ledger.

    The file may be an export of this ledger or of a cloud.

    \b
    stepfare ledger check export.parquet
    stepfare ledger check bill.csv.gz --closed-through 2026-10 -o json

    Exit codes: 1 a rule is broken; 2 the file cannot be read.
    """
    from router.showback.focus.check import check_file

    closed_until = None if closed_through is None else _after(closed_through)
    with console.progress("reading"):
        checked = check_file(file, closed_until, keep=most)
    console.out(_as_json(checked) if output is BillFormat.JSON else _as_text(checked, str(file)))
    return ExitCode.FAILURE if checked.total else ExitCode.OK


def _after(month: str) -> datetime:
    try:
        start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        what = f"{month!r} is not a month"
        raise InvalidInputError.single(what, field="--closed-through", remedy="write 2026-10") from None
    if start.month == _DECEMBER:
        return start.replace(year=start.year + 1, month=1)
    return start.replace(month=start.month + 1)


def _as_text(checked: FocusCheck, path: str) -> str:
    from router.render.bills_text import escape_unprintable

    lines = []
    for each in checked.findings:
        row = f" (row {each.row:,})" if each.line is not None else ""
        lines.append(f"{each.place(path)}{row}: {escape_unprintable(each.column)} {each.what}")
        lines.append(f"    {each.rule}: {each.why}")
    hidden = checked.total - len(checked.findings)
    if hidden:
        lines.append(f"... and {hidden:,} more of the same kinds; --most shows more of each")
    result = format_count(checked.total, "finding") if checked.total else "every rule is kept"
    lines.append(f"{path}: FOCUS {checked.version}, {format_count(checked.rows, 'row')}: {result}")
    return "\n".join(lines)


def _as_json(checked: FocusCheck) -> str:
    findings = [
        {
            "rule": f.rule,
            "row": f.row,
            "line": f.line,
            "column": f.column,
            "value": f.value,
            "what": f.what,
            "why": f.why,
        }
        for f in checked.findings
    ]
    counts = [{"rule": rule, "column": column, "count": count} for (rule, column), count in checked.counts.items()]
    document = {
        "schema_version": SCHEMA_VERSION,
        "file": checked.name,
        "focus_version": checked.version,
        "rows": checked.rows,
        "total": checked.total,
        "counts": counts,
        "findings": findings,
    }
    return json.dumps(document, indent=2)
