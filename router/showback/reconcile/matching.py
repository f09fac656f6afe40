"""Match bills with what was metered, and assemble what counts as spent after that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.showback.reconcile import actual, exact, levels, spread
from router.showback.reconcile.levels import OutsideEvidence, ResourceKind

if TYPE_CHECKING:
    import duckdb


def reconcile(
    connection: duckdb.DuckDBPyConnection,
    facts: str,
    into: str = "actual",
    *,
    stored: bool = True,
    outside: OutsideEvidence | None = None,
) -> None:
    """Create the table ``into`` from the relation ``facts``: facts of what counts as spent, each metered second once.

    ``facts`` are of any sources (:data:`router.showback.facts.COLUMNS`). The table holds:

    - Rows of bills (source ``billed``, the state that they had), a piece for each metered stretch that they lie on,
      with its team, job, attempt and use; rows that lie on none, with the owner that their resource or tags name.
      By origin and row the pieces add up to the row, and so to the bill, in every amount, to the last digit.
    - Metered time that no row covers (``metered``, Estimated), cut where a row begins or ends.
    - What people added, as it is. Planned facts are not money spent, and are not in it.

    Hours, accelerator hours, useful and lost work are the meter's and divided by time; the price of the hours is the
    bill's. The same facts in any order give the same table but for the order of its rows; ``rc_...`` are tables of the
    connection that :mod:`router.showback.reconcile.outcome` reads. ValueError where two facts of one source have one
    origin and row. Where it is not to be ``stored``, the table is a view: for one question, about few columns.
    ``outside`` is evidence of what the facts are a part of.
    """
    connection.execute("SET TimeZone = 'UTC'")
    exact.define_macros(connection)
    spread.load_match_inputs(connection, facts)
    levels.match_rows(connection, outside)
    spread.spread_rows(connection)
    actual.assemble_actual(connection, facts, into, stored=stored)


def known_kinds(
    connection: duckdb.DuckDBPyConnection, facts: str, outside: OutsideEvidence, month: str
) -> dict[ResourceKind, str]:
    """Return the kinds of which the month's bills know resources by their ids, and the last books that these are in."""
    exact.define_macros(connection)
    spread.load_match_inputs(connection, facts)
    levels.match_resources(connection, outside)
    return read_known_kinds(connection, month)


def read_known_kinds(connection: duckdb.DuckDBPyConnection, month: str) -> dict[ResourceKind, str]:
    """Return those of :func:`known_kinds` once :func:`reconcile` has matched the facts."""
    found = "SELECT cloud, what, max(metered) FROM rc_sure_kind WHERE billed = $1 GROUP BY ALL ORDER BY ALL"
    return {(cloud, what): last for cloud, what, last in connection.execute(found, [month]).fetchall()}
