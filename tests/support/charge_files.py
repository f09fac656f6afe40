"""Files of golden charges with one cell, one column or one row made wrong."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from router.showback.focus.charge_files import write_csv
from router.showback.focus.columns import BY_NAME, NEWEST, Charge, FocusColumnKind, match_columns
from router.showback.focus.feed import open_feed
from router.showback.focus.texts import read_json
from tests.support.golden_charges import golden_charges


def read_charges(path: Path) -> Iterator[Charge]:
    """The charges of a file that stepfare wrote, in any version; a cell without text is None."""
    with open_feed(path) as feed:
        columns = {source: BY_NAME[target] for target, source in match_columns(feed.header).items()}
        for batch in feed.batches:
            texts = [batch.columns[source].to_pylist() for source in columns]
            for row in zip(*texts, strict=True):
                cells = zip(columns.values(), row, strict=True)
                yield Charge(**{column.field: _read(text, column.kind) for column, text in cells if text})


def _read(text: str, kind: FocusColumnKind) -> Any:
    if kind is FocusColumnKind.DECIMAL:
        return Decimal(text)
    if kind is FocusColumnKind.MOMENT:
        return datetime.fromisoformat(text)
    return read_json(text) if kind is FocusColumnKind.JSON else text


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

    def change(rows: list[Row]) -> None:
        for row in rows:
            row[new] = row.pop(old)

    return change


def without(column: str) -> Change:

    def change(rows: list[Row]) -> None:
        for row in rows:
            del row[column]

    return change
