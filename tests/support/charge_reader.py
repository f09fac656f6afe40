"""Read files of charges back: what a property compares with what was written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from router.showback.focus.columns import BY_NAME, Charge, FocusColumnKind, match_columns
from router.showback.focus.feed import open_feed
from router.showback.focus.texts import read_json


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
