"""No text of a CSV is a formula to a spreadsheet, no number becomes text, and one writer writes them all."""

from __future__ import annotations

import csv
import io
from operator import itemgetter
from pathlib import Path

import pytest

from router.cli import console
from router.files.csv_text import csv_text, escape_formula, records_csv
from router.render.record_table import RecordTable, TableColumn
from tests.support.repository import ROOT

ROW: dict[str, object] = {
    "who": "=HYPERLINK(1)",
    "usd": "-5.25",
    "count": -3,
    "reason": "@x",
    "note": None,
    "share": -1e-9,
    "late": False,
}
# FOCUS files are for machines: there a quote would change a value.
WRITERS = {"router/files/csv_text.py", "router/showback/focus/charge_files.py"}


def test_texts_are_quoted_and_numbers_are_not() -> None:
    header, row = csv.reader(io.StringIO(records_csv(list(ROW), [ROW])))
    assert header == list(ROW)
    assert row == ["'=HYPERLINK(1)", "-5.25", "-3", "'@x", "", "-1e-09", "False"]
    assert csv_text(["=a"], [[None], ["-1e5"], ["-12.50"], ["+3"]], unknown="none") == "'=a\nnone\n'-1e5\n-12.50\n+3\n"


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_a_text_of_each_sign_is_kept_in_one_cell(sign: str) -> None:
    text = f'{sign}1+1,"x";\ry'
    ((cell,),) = list(csv.reader(io.StringIO(csv_text([text], []), newline="")))
    assert cell == f"'{text}" == escape_formula(text)


def test_the_ledger_in_the_terminal_is_such_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    table: RecordTable[dict[str, object]] = RecordTable(tuple(TableColumn(name, itemgetter(name)) for name in ROW))
    console.print_table("csv", "entries", table, [ROW], "none")
    assert capsys.readouterr().out.splitlines()[1] == "'=HYPERLINK(1),-5.25,-3,'@x,,-1e-09,false"


def test_no_other_module_writes_csv() -> None:
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in _sources()}
    assert len(sources) > 500
    found = {name for name, text in sources.items() if "csv.writer(" in text or "csv.DictWriter(" in text}
    assert found == WRITERS


def _sources() -> list[Path]:
    return [path for room in ("pricing", "providers", "router", "terraform") for path in (ROOT / room).rglob("*.py")]
