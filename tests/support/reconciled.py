"""Facts laid beside each other in a connection of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb

from router.showback.reconcile.matching import reconcile
from tests.support.facts_rows import facts


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
