"""What people add to the ledger: from YAML and CSV alike, exact, once, and refused with the place of what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.config.added_file import read_added_entries
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from tests.support.state_values import NOW

YAML = """\
entries:
  - {kind: fee, usd: "1250.50", period: 2026-11, reason: support, reference: INV-7, cloud: aws, team: research}
  - {kind: credit, usd: -99.90, period: 2026-11, reason: promised, corrects: 2026-10}
  - kind: fee
    usd: 800
    start: 2026-11-01T00:00Z
    end: 2026-11-08T00:00Z
    reason: reserved and idle
    use: reservation_unused
    what: machine
    quantity: 168
    unit: Hours
"""
CSV = """\
kind,usd,period,start,end,reason,reference,corrects,cloud,team,use,what,quantity,unit
fee,1250.50,2026-11,,,support,INV-7,,aws,research,,,,
credit,"-99.90",2026-11,,,promised,,2026-10,,,,,,
fee,800,,2026-11-01T00:00Z,2026-11-08T00:00Z,reserved and idle,,,,,reservation_unused,machine,168,Hours
"""


def read(folder: Path, text: str, name: str = "rows.yaml", who: str = "anna@here") -> tuple[LedgerEntry, ...]:
    (folder / name).write_text(text, encoding="utf-8")
    return read_added_entries(folder / name, who, NOW)


def problems(folder: Path, text: str, name: str = "rows.yaml") -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(folder, text, name)
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    assert read(tmp_path, YAML) == read(tmp_path, CSV, "rows.csv")


def test_what_they_say(tmp_path: Path) -> None:
    fee, credit, idle = read(tmp_path, YAML)
    assert (fee.kind, fee.usd, fee.period, fee.what) == (
        LedgerEntryKind.FEE,
        Usd.parse("1250.50"),
        Month(2026, 11),
        CostItem.OTHER,
    )
    assert (fee.start, fee.end) == (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    assert (fee.who, fee.reason, fee.reference, fee.cloud, fee.team) == (
        "anna@here",
        "support",
        "INV-7",
        "aws",
        "research",
    )
    assert (credit.kind, credit.usd, credit.corrects) == (LedgerEntryKind.CREDIT, Usd.parse("-99.9"), "2026-10")
    assert (idle.use, idle.what, idle.quantity, idle.unit) == (
        MachineUse.RESERVATION_UNUSED,
        CostItem.MACHINE,
        Fraction(168),
        "Hours",
    )
    assert (idle.period, idle.end.day) == (Month(2026, 11), 8)


def test_the_same_row_has_the_same_key_whoever_adds_it(tmp_path: Path) -> None:
    keys = [entry.key for entry in read(tmp_path, YAML)]
    assert len(set(keys)) == 3
    assert [entry.key for entry in read(tmp_path, YAML, who="bob@there")] == keys
    assert [entry.key for entry in read(tmp_path, YAML.replace("800", "801"))][2] != keys[2]
    (named,) = read(tmp_path, "entries: [{kind: fee, usd: 1, period: 2026-11, reason: r, id: seven}]")
    assert named.key == "added seven"


def test_two_that_say_the_same_need_names(tmp_path: Path) -> None:
    row = "{kind: fee, usd: 1, period: 2026-11, reason: r"
    assert "give each an `id`" in problems(tmp_path, f"entries: [{row}}}, {row}}}]")[0]
    assert len(read(tmp_path, f"entries: [{row}, id: a}}, {row}, id: b}}]")) == 2


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("{kind: fee, usd: 1, reason: r}", "rows.yaml:1:12: entries[0].period: needs `period`"),
        ("{kind: fee, usd: ten, period: 2026-11, reason: r}", "rows.yaml:1:29: entries[0].usd: 'ten' is not an amount"),
        ("{kind: fee, usd: 0.0000000001, period: 2026-11, reason: r}", "more than nine decimals"),
        ("{kind: fee, usd: true, period: 2026-11, reason: r}", "is no amount"),
        ("{kind: rent, usd: 1, period: 2026-11, reason: r}", "entries[0].kind"),
        ("{kind: fee, usd: 1, period: 2026-13, reason: r}", "no month such as 2026-11"),
        ("{kind: fee, usd: 1, period: 2026-11}", "entries[0].reason"),
        ("{kind: fee, usd: 1, period: 2026-11, reason: r, sum: 4}", "entries[0].sum"),
        ("{kind: fee, usd: 1, start: 2026-11-01T00:00Z, reason: r}", "`start` and `end` come together"),
        ("{kind: fee, usd: 1, start: 2026-11-01T00:00Z, end: 2026-11-01T00:00Z, reason: r}", "ends when it begins"),
        ("{kind: fee, usd: 1, period: 2026-11, reason: r, quantity: 3}", "`quantity` and `unit` come together"),
        ("{kind: fee, usd: 1, period: 2026-11, reason: r, unit: GB, quantity: x}", "is no quantity"),
        (
            "{kind: fee, usd: -1, period: 2026-11, reason: r}",
            "rows.yaml:1:12: entries[0]: money is never negative but for credits",
        ),
        ("{kind: credit, usd: 1, period: 2026-11, reason: r}", "a credit is not above zero"),
        (
            "{kind: fee, usd: 1, period: 2026-12, start: 2026-11-01T00:00Z, end: 2026-11-02T00:00Z, reason: r}",
            "in the books of 2026-12 without correcting anything",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, row: str, wanted: str) -> None:
    (said,) = problems(tmp_path, f"entries: [ {row}]")
    assert wanted in said


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kind,usd,period,reason\nfee,x,2026-11,r\n", "rows.csv:2: usd: 'x' is not an amount"),
        ("kind,usd,period,reason\nfee,1,2026-11\n", "rows.csv:2: has not as many values"),
        ("kind,usd,period,reason\nfee,1,2026-11,r,s\n", "rows.csv:2: has not as many values"),
        ("kind,usd,period,reason,sum\nfee,1,2026-11,r,4\n", "rows.csv:2: sum: is no column; known: kind"),
        ('kind,usd,period,reason\nfee,1,2026-11,"r\n', "is not CSV"),
        ("kind,usd,period\nfee,1,2026-11\n", "rows.csv:2: reason: Field required"),
        ("kind,usd,period,reason\nfee,-1,2026-11,r\n", "rows.csv:2: money is never negative"),
    ],
)
def test_in_csv_too(tmp_path: Path, text: str, wanted: str) -> None:
    assert wanted in problems(tmp_path, text, "rows.csv")[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("a.csv", "a.yaml"):
        with pytest.raises(InvalidInputError, match="no such file"):
            read_added_entries(tmp_path / name, "anna", NOW)
    (tmp_path / "b.csv").write_bytes(b"kind\n\xff")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_added_entries(tmp_path / "b.csv", "anna", NOW)
