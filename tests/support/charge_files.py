"""Files of golden charges with one cell, one column or one row made wrong."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from router.showback.focus.charge_files import write_csv
from router.showback.focus.columns import NEWEST, Charge
from tests.support.golden_charges import golden_charges

Row = dict[str, str]
Change = Callable[[list[Row]], None]


def nine() -> tuple[Charge, ...]:
    """Eight good rows of one spot job and one of a disk, as in the published trial of mistakes."""
    charges = golden_charges()
    return (*charges[1:9], next(each for each in charges if each.charge_description == "aws-disk"))


def changed(path: Path, change: Change, charges: Sequence[Charge] | None = None, version: str = NEWEST) -> Path:
    """A CSV of ``charges`` (nine of the golden ones) after ``change`` has been at its rows."""
    write_csv(path, nine() if charges is None else charges, version)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def cell(column: str, value: str, row: int = 5) -> Change:
    """Another value in one cell; rows count from 1."""

    def change(rows: list[Row]) -> None:
        rows[row - 1][column] = value

    return change


def renamed(old: str, new: str) -> Change:
    """A column under another name."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            row[new] = row.pop(old)

    return change


def without(column: str) -> Change:
    """No such column."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            del row[column]

    return change
