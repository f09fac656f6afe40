"""Number the inputs of matching: stretches of metered time and rows of bills, in an order independent of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

# Time that nobody used: a row of it lies beside metered time, and covers none of it.
_UNUSED: Final = "('commitment_unused', 'reservation_unused')"

_STRETCHES: Final = """
CREATE OR REPLACE TEMP TABLE rc_stretch AS
SELECT row_number() OVER (ORDER BY origin, "row") AS m, origin, "row", epoch_us("start") AS s, epoch_us("end") AS e,
       what, cloud, account, region, instance_type, market, lower(resource) AS resource, lower(sku) AS sku,
       team, job, attempt, currency, coalesce(rc_money_units(billed), 0::HUGEINT) AS units
FROM {facts} WHERE source = 'metered' AND "end" > "start"
"""

_ROWS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_row AS
SELECT row_number() OVER (ORDER BY origin, "row") AS b, origin, "row", epoch_us("start") AS s, epoch_us("end") AS e,
       what, cloud, account, region, instance_type, market, lower(resource) AS resource, lower(sku) AS sku,
       team, job, attempt, month,
       category = 'Usage' AND corrects IS NULL AND coalesce("use", '') NOT IN {_UNUSED} AS is_usage
FROM {{facts}} WHERE source = 'billed'
"""

_DUPLICATE: Final = """
SELECT source, origin, "row" FROM {facts} WHERE source IN ('metered', 'billed')
GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 1
"""


def load_match_inputs(connection: duckdb.DuckDBPyConnection, facts: str) -> None:
    """Create the tables ``rc_stretch`` (m) and ``rc_row`` (b) from the relation ``facts``.

    Times are whole microseconds. ValueError where two facts of a source have one origin and row: money would be there
    twice.
    """
    duplicate = connection.execute(_DUPLICATE.format(facts=facts)).fetchone()
    if duplicate is not None:
        raise ValueError(f"two {duplicate[0]} facts are row {duplicate[2]} of {duplicate[1]}")
    connection.execute(_STRETCHES.format(facts=facts))
    connection.execute(_ROWS.format(facts=facts))
