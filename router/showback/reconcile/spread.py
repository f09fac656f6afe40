"""Number the inputs of matching, and spread a bill's row over the stretches that it lies on.

Stretches of metered time and rows of bills are numbered in an order independent of theirs, and their amounts are whole
units (:mod:`router.showback.facts`). A row is spread in
proportion to the metered money of its stretches, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from router.files.duckdb_session import sql_list
from router.ledger.entry import UNUSED_USES

if TYPE_CHECKING:
    import duckdb


# Amounts of a bill's row by name: how each becomes whole numbers, and back.
AMOUNTS: Final = {
    "billed": "money",
    "effective": "money",
    "list": "money",
    "on_demand": "money",
    "quantity": "amount",
}
# Amounts of metered time, which are divided with it.
TIME_AMOUNTS: Final = {**AMOUNTS, **dict.fromkeys(("hours", "gpu_hours", "useful", "lost"), "amount")}
# Most amounts are the same as another of their row, and are converted, cut and divided with it.
SAME_AS: Final = {"effective": "billed", "list": "billed", "hours": "quantity"}


def _units(amounts: Iterable[str]) -> str:
    """Return the SQL of amounts as whole units, where those of ``SAME_AS`` are columns already."""
    columns = [
        f'CASE WHEN "{name}" = "{SAME_AS[name]}" THEN {SAME_AS[name]}_units '
        f'ELSE rc_{TIME_AMOUNTS[name]}_units("{name}") END AS {name}_units'
        if name in SAME_AS
        else f"{name}_units"
        for name in amounts
    ]
    return ", ".join(columns)


def _first_units(amounts: Iterable[str]) -> str:
    """Return the SQL of those amounts as whole units that others may be the same as, or that are like no other."""
    return ", ".join(
        f'rc_{TIME_AMOUNTS[name]}_units("{name}") AS {name}_units' for name in amounts if name not in SAME_AS
    )


# Numbers in the order of origin and row, without sorting: no origin has a million million rows.
_ORIGINS: Final = """
CREATE OR REPLACE TEMP TABLE rc_origin AS
SELECT origin, (row_number() OVER (ORDER BY origin) - 1) * 1000000000000 AS before
FROM (SELECT DISTINCT origin FROM {facts} WHERE source IN ('metered', 'billed'))
"""

_STRETCHES: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_stretch AS
SELECT before + "row" AS m, origin, "row", epoch_us("start") AS s, epoch_us("end") AS e,
       what, cloud, account, region, instance_type, market, lower(resource) AS resource, lower(sku) AS sku,
       team, job, attempt, month, currency, coalesce(billed_units, 0::HUGEINT) AS units, {_units(TIME_AMOUNTS)}
FROM (SELECT *, {_first_units(TIME_AMOUNTS)} FROM {{facts}} WHERE source = 'metered' AND "end" > "start")
JOIN rc_origin USING (origin)
"""

# A row of time that nobody used lies beside metered time, and covers none of it.
_ROWS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_row AS
SELECT before + "row" AS b, origin, "row", epoch_us("start") AS s, epoch_us("end") AS e,
       what, cloud, account, region, instance_type, market, lower(resource) AS resource, lower(sku) AS sku,
       team, job, attempt, month,
       category = 'Usage' AND corrects IS NULL AND coalesce("use", '') NOT IN {sql_list(UNUSED_USES)} AS is_usage,
       {_units(AMOUNTS)}
FROM (SELECT *, {_first_units(AMOUNTS)} FROM {{facts}} WHERE source = 'billed')
JOIN rc_origin USING (origin)
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
    connection.execute(_ORIGINS.format(facts=facts))
    connection.execute(_STRETCHES.format(facts=facts))
    connection.execute(_ROWS.format(facts=facts))


_SEVERAL: Final = "SELECT b FROM rc_pair GROUP BY b HAVING count(*) > 1"

# Of each amount of a stretch what is reached at a moment within it at which something is cut: v x ticks / whole.
_EDGES: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_edge AS
WITH edges AS (
    SELECT m, unnest([fs, fe]) AS moment FROM rc_pair WHERE fs IS NOT NULL
    UNION SELECT m, unnest([s, e]) FROM rc_free
    UNION SELECT m, unnest([os, oe]) FROM rc_pair WHERE b IN ({_SEVERAL})),
amounts AS (
    SELECT m, moment, (moment - s)::HUGEINT AS ticks, (e - s)::HUGEINT AS whole,
           {", ".join(f"{name}_units" for name in TIME_AMOUNTS)}
    FROM edges JOIN rc_stretch USING (m) WHERE moment > s AND moment < e),
quotients AS (SELECT *, {", ".join(f"rc_divided({n}_units, whole) AS {n}_q" for n in TIME_AMOUNTS)} FROM amounts),
rests AS (
    SELECT *, {", ".join(f"({n}_units - {n}_q * whole) * ticks AS {n}_rest" for n in TIME_AMOUNTS)} FROM quotients)
SELECT m, moment, {", ".join(f"{n}_q * ticks + rc_divided({n}_rest, whole) AS {n}" for n in TIME_AMOUNTS)} FROM rests
"""


def units_between(name: str, begin: str, end: str) -> str:
    """Return the SQL of an amount of the stretch x between two moments, whose edges are ``lo`` and ``hi``, in units."""
    until = f"CASE WHEN {end} = x.e THEN x.{name}_units ELSE hi.{name} END"
    return f"({until} - CASE WHEN {begin} = x.s THEN 0::HUGEINT ELSE lo.{name} END)"


def join_edges(begin: str, end: str) -> str:
    """Return the SQL that joins the edges ``lo`` and ``hi`` of the stretch x."""
    sides = {"lo": begin, "hi": end}
    return " ".join(f"LEFT JOIN rc_edge {n} ON {n}.m = x.m AND {n}.moment = {at}" for n, at in sides.items())


# The weight is the metered money of the overlap, in nano-dollars; the overlap itself where no stretch has any.
_WEIGHTS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_weight AS
WITH several AS ({_SEVERAL}),
amounts AS (
    SELECT p.b, p.m, p.os, p.oe, greatest(0::HUGEINT, coalesce({units_between("billed", "p.os", "p.oe")}, 0)) AS units
    FROM rc_pair p SEMI JOIN several USING (b) JOIN rc_stretch x ON x.m = p.m {join_edges("p.os", "p.oe")}),
priced AS (SELECT b, m, os, oe, rc_divided(units, {10**15}::HUGEINT) AS nanos FROM amounts),
weighed AS (
    SELECT b, m, os, CASE WHEN sum(nanos) OVER (PARTITION BY b) = 0 THEN (oe - os)::HUGEINT ELSE nanos END AS w
    FROM priced)
SELECT *, sum(w) OVER (PARTITION BY b) AS of_all FROM weighed
"""


def _own(name: str) -> str:
    """Return the SQL of an amount of the row r; null where it is the same as another one, which is divided for both."""
    if name not in SAME_AS:
        return f"r.{name}_units"
    return f"CASE WHEN r.{name}_units IS DISTINCT FROM r.{SAME_AS[name]}_units THEN r.{name}_units END"


# The largest remainder, in trillionths where the amount has no more digits, else in its last.
_PARTS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_part AS
WITH amounts AS (
    SELECT r.b, unnest([{", ".join(f"'{name}'" for name in AMOUNTS)}]) AS name,
           unnest([{", ".join(_own(name) for name in AMOUNTS)}]) AS v,
           unnest([{", ".join(f"{10**6 if kind == 'amount' else 10**12}::HUGEINT" for kind in AMOUNTS.values())}])
               AS trillionth
    FROM (SELECT DISTINCT b FROM rc_weight) w JOIN rc_row r ON r.b = w.b),
whole AS (
    SELECT b, name, sign(v)::HUGEINT AS sg, abs(v) AS size, trillionth, rc_divided(size, trillionth) AS coarse
    FROM (SELECT b, name, v, abs(v) AS size, trillionth FROM amounts WHERE v IS NOT NULL)),
scaled AS (
    SELECT b, name, sg, CASE WHEN coarse * trillionth = size THEN trillionth ELSE 1 END AS g,
           CASE WHEN coarse * trillionth = size THEN coarse ELSE size END AS a
    FROM whole),
quotients AS (
    SELECT b, m, os, w, of_all, name, sg, g, a, rc_divided(a, of_all) AS q FROM scaled JOIN rc_weight USING (b)),
rests AS (SELECT *, (a - q * of_all) * w AS over FROM quotients),
cut AS (
    SELECT *, q * w + rc_divided(over, of_all) AS base, over - rc_divided(over, of_all) * of_all AS rest FROM rests),
ranked AS (
    SELECT *, a - sum(base) OVER (PARTITION BY b, name) AS missing,
           row_number() OVER (PARTITION BY b, name ORDER BY rest DESC, os, m) AS turn FROM cut)
SELECT b, m, os, {", ".join(f"max(part) FILTER (name = '{name}') AS {name}" for name in AMOUNTS)}
FROM (SELECT b, m, os, name, sg * g * (base + (turn <= missing)::HUGEINT) AS part FROM ranked)
GROUP BY b, m, os
"""


def part_of_row(name: str) -> str:
    """Return the SQL of an amount of the row i of a bill in units: of its ``part``, else of all of it."""
    part = f"part.{name}"
    if name in SAME_AS:
        part = f"CASE WHEN i.{name}_units = i.{SAME_AS[name]}_units THEN part.{SAME_AS[name]} ELSE {part} END"
    return f"CASE WHEN part.b IS NULL THEN i.{name}_units ELSE {part} END"


def spread_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables ``rc_edge`` and ``rc_part``.

    ``rc_edge``: what of each amount of a stretch (m) is reached at the moments at which it is cut. ``rc_part``: the
    part of each stretch (m, os) in each row on several (b); its parts add up to the row, and each is less than a last
    digit away from its exact share. Both are in whole units.
    """
    connection.execute(_EDGES)
    connection.execute(_WEIGHTS)
    connection.execute(_PARTS)
    connection.execute("DROP TABLE rc_weight")
