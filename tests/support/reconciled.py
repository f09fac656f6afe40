"""Facts laid beside each other in a connection of their own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from router.showback.facts import COLUMNS
from router.showback.reconcile.matching import reconcile

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


def connected(rows: Iterable[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    """A connection with the tables ``facts`` and, reconciled, ``actual``."""
    connection = duckdb.connect(config={"threads": 2})
    given = facts(rows)
    connection.register("given", given)
    connection.execute("CREATE TABLE facts AS SELECT * FROM given")
    reconcile(connection, "facts")
    return connection


def actual(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The facts that count as spent, in order of time, source and row."""
    with connected(rows) as connection:
        found = connection.sql('SELECT * FROM actual ORDER BY "start", source, origin, "row", key').to_arrow_table()
    return list(found.to_pylist())


def levels(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, int], str]:
    """How each row of a bill was matched, by origin and row."""
    with connected(rows) as connection:
        found = connection.execute('SELECT origin, "row", level FROM rc_level JOIN rc_row USING (b)').fetchall()
    return {(origin, row): level for origin, row, level in found}
