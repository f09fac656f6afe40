"""Number the inputs of matching, and spread a bill's row over the stretches that it lies on.

Stretches of metered time and rows of bills are numbered in an order independent of theirs. A row is spread in
proportion to the metered money of its stretches, exactly.
"""

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


# Amounts by name: how each becomes whole numbers, and back.
AMOUNTS: Final = {
    "billed": "money",
    "effective": "money",
    "list": "money",
    "on_demand": "money",
    "quantity": "amount",
}


# The weight is the metered money of the overlap, in nano-dollars; the overlap itself where no stretch has any.
_WEIGHTS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_weight AS
WITH several AS (SELECT b FROM rc_pair GROUP BY b HAVING count(*) > 1),
priced AS (
    SELECT p.b, p.m, p.os, p.oe, greatest(0, rc_between(t.units, p.os, p.oe, t.s, t.e) // {10**15}::HUGEINT) AS nanos
    FROM rc_pair p SEMI JOIN several USING (b) JOIN rc_stretch t ON t.m = p.m),
weighed AS (
    SELECT b, m, os, CASE WHEN sum(nanos) OVER (PARTITION BY b) = 0 THEN (oe - os)::HUGEINT ELSE nanos END AS w
    FROM priced)
SELECT *, sum(w) OVER (PARTITION BY b) AS of_all FROM weighed
"""


# The largest remainder, in trillionths where the amount has no more digits, else in its last.
_PARTS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_part AS
WITH amounts AS (
    SELECT r.b, unnest([{", ".join(f"'{name}'" for name in AMOUNTS)}]) AS name,
           unnest([{", ".join(f'rc_{kind}_units(f."{name}")' for name, kind in AMOUNTS.items())}]) AS v
    FROM (SELECT DISTINCT b FROM rc_weight) w JOIN rc_row r ON r.b = w.b
    JOIN {{facts}} f ON f.source = 'billed' AND f.origin = r.origin AND f."row" = r."row"),
grained AS (
    SELECT *, CASE WHEN name = 'quantity' THEN {10**6}::HUGEINT ELSE {10**12}::HUGEINT END AS trillionth
    FROM amounts WHERE v IS NOT NULL),
scaled AS (
    SELECT b, name, sign(v)::HUGEINT AS sg, CASE WHEN v % trillionth = 0 THEN trillionth ELSE 1 END AS g,
           abs(v) // g AS a
    FROM grained),
cut AS (
    SELECT w.b, w.m, w.os, name, sg, g, a, rc_until(a, w, of_all) AS base, ((a % of_all) * w) % of_all AS rest
    FROM scaled JOIN rc_weight w USING (b)),
ranked AS (
    SELECT *, a - sum(base) OVER (PARTITION BY b, name) AS missing,
           row_number() OVER (PARTITION BY b, name ORDER BY rest DESC, os, m) AS turn FROM cut)
SELECT b, m, os, {", ".join(f"max(part) FILTER (name = '{name}') AS {name}" for name in AMOUNTS)}
FROM (SELECT b, m, os, name, sg * g * (base + (turn <= missing)::HUGEINT) AS part FROM ranked)
GROUP BY b, m, os
"""


def spread_rows(connection: duckdb.DuckDBPyConnection, facts: str) -> None:
    """Create the table ``rc_part``: the part of each stretch (m, os) in each row on several (b), in whole units.

    The parts of a row add up to it; each is less than a last digit away from its exact share.
    """
    connection.execute(_WEIGHTS)
    connection.execute(_PARTS.format(facts=facts))
    connection.execute("DROP TABLE rc_weight")
