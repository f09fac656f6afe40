"""Facts by hand: what a row does not say is as it is most often."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from router.showback.facts import COLUMNS

USUAL: dict[str, Any] = {
    "source": "metered",
    "origin": "ledger",
    "state": "Estimated",
    "category": "Usage",
    "month": "2026-11",
    "start": datetime(2026, 11, 3, 10, tzinfo=UTC),
    "end": datetime(2026, 11, 3, 11, tzinfo=UTC),
    "what": "machine",
    "currency": "USD",
    "unpriced": False,
}


def facts(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """A table of facts; ``row`` counts from 1 where it is not said. KeyError for a name that is no column."""
    made = []
    for number, said in enumerate(rows, 1):
        unknown = set(said) - set(COLUMNS.names)
        if unknown:
            raise KeyError(f"facts have no {', '.join(sorted(unknown))}")
        made.append({**dict.fromkeys(COLUMNS.names), "row": number, **USUAL, **said})
    return pa.Table.from_pylist(made, schema=COLUMNS)
