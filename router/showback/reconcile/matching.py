"""Match bills with what was metered, and assemble what counts as spent after that.

Stretches of metered time and rows of bills are numbered in an order independent of theirs, and their amounts are whole
units (:mod:`router.showback.facts`). A row is spread in proportion to the metered money of its stretches, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from router.files.duckdb_session import sql_list
from router.ledger.entry import UNUSED_USES
from router.showback.facts import COLUMNS, define_macros
from router.showback.reconcile import levels
from router.showback.reconcile.levels import OutsideEvidence, ResourceKind

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


_MEASURES: Final = ("hours", "gpu_hours", "useful", "lost")
_OWNER_COLUMNS: Final = ("team", "project", "cost_center", "job", "job_digest", "plan", "gang", "attempt")
_OF_MACHINE: Final = ("instance_type", "market", "accelerator")

# The owner of the resource, attempt or job that a row on no stretch names, where all that is known of it agrees.
_OWNERS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_owner AS
WITH wanted AS (SELECT DISTINCT g.k FROM rc_tag g ANTI JOIN rc_pair p ON p.b = g.b)
SELECT k, {", ".join(f"CASE WHEN count(DISTINCT {w}) = 1 THEN any_value({w}) END AS {w}" for w in _OWNER_COLUMNS)}
FROM (
    SELECT w.k, {", ".join(f"f.{w}" for w in _OWNER_COLUMNS)} FROM wanted w
    JOIN {{facts}} f ON f.attempt = substr(w.k, length('attempt ') + 1)
    WHERE starts_with(w.k, 'attempt ') AND f.source IN ('metered', 'planned')
    UNION ALL
    SELECT w.k, {", ".join(f"f.{w}" for w in _OWNER_COLUMNS)} FROM wanted w
    JOIN {{facts}} f ON f.job = substr(w.k, length('job ') + 1)
    WHERE starts_with(w.k, 'job ') AND f.source IN ('metered', 'planned')
    UNION ALL
    SELECT 'machine ' || k.m, {", ".join(f"f.{w}" for w in _OWNER_COLUMNS)}
    FROM (SELECT DISTINCT m FROM rc_known) k
    JOIN rc_stretch own ON own.m = k.m JOIN rc_stretch t ON t.resource = own.resource
    JOIN {{facts}} f ON f.source = 'metered' AND f.origin = t.origin AND f."row" = t."row")
GROUP BY k
"""


def _part_of_time(name: str, begin: str, end: str) -> str:
    return f"rc_{TIME_AMOUNTS[name]}({units_between(name, begin, end)})"


def _piece_on_stretch() -> dict[str, str]:
    """Return the SQL of a piece of a bill's row (r) on a stretch (t), by column."""
    expressions = {name: f'r."{name}"' for name in COLUMNS.names}
    expressions |= {
        name: f"coalesce(t.{name}, r.{name})" for name in (*_OWNER_COLUMNS, "rank", "cloud", "region", "zone")
    }
    expressions |= {n: f"CASE WHEN r.what = t.what THEN coalesce(t.{n}, r.{n}) ELSE r.{n} END" for n in _OF_MACHINE}
    expressions |= {name: f"coalesce(r.{name}, t.{name})" for name in ("account", "resource", "sku")}
    expressions |= {"key": "t.key", "start": "make_timestamptz(p.os)", "end": "make_timestamptz(p.oe)"}
    expressions["use"] = 'CASE WHEN p.covers THEN coalesce(t."use", r."use") ELSE r."use" END'
    expressions |= {name: f"rc_{kind}({part_of_row(name)})" for name, kind in AMOUNTS.items()}
    # Time counts with the first row that covers it, never twice.
    expressions |= {n: f"CASE WHEN p.fs IS NOT NULL THEN {_part_of_time(n, 'p.fs', 'p.fe')} END" for n in _MEASURES}
    metered_price = f"CASE WHEN p.fs IS NOT NULL THEN {_part_of_time('on_demand', 'p.fs', 'p.fe')} END"
    expressions["on_demand"] = (
        f'CASE WHEN r."on_demand" IS NULL THEN {metered_price} ELSE {expressions["on_demand"]} END'
    )
    expressions["useful_unit"] = "CASE WHEN p.fs IS NOT NULL THEN t.useful_unit END"
    return expressions


def _unmatched_row() -> dict[str, str]:
    """Return the SQL of a bill's row (r) on no stretch, with its owner (o) as far as known."""
    return {name: f'r."{name}"' for name in COLUMNS.names} | {
        name: f"coalesce(r.{name}, o.{name})" for name in _OWNER_COLUMNS
    }


def _uncovered_piece() -> dict[str, str]:
    """Return the SQL of a piece of a stretch (t) that no row covers."""
    expressions = {name: f't."{name}"' for name in COLUMNS.names}
    expressions |= {"start": "make_timestamptz(p.s)", "end": "make_timestamptz(p.e)"}
    return expressions | {name: _part_of_time(name, "p.s", "p.e") for name in TIME_AMOUNTS}


def _columns(expressions: dict[str, str]) -> str:
    return ", ".join(f'({expressions[field.name]})::{_sql(field.type)} AS "{field.name}"' for field in COLUMNS)


def _sql(kind: object) -> str:
    named = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "bool": "BOOLEAN"}
    text = str(kind)
    if text.startswith("decimal128"):
        return text.replace("decimal128", "DECIMAL")
    return named.get(text, "TIMESTAMPTZ")


_ACTUAL: Final = f"""
CREATE OR REPLACE TEMP {{relation}} {{into}} AS
SELECT {_columns(_piece_on_stretch())}
FROM rc_pair p JOIN rc_row i ON i.b = p.b JOIN rc_stretch x ON x.m = p.m
{join_edges("p.fs", "p.fe")}
LEFT JOIN rc_part part ON part.b = p.b AND part.m = p.m AND part.os = p.os
JOIN {{facts}} r ON r.source = 'billed' AND r.origin = i.origin AND r."row" = i."row"
JOIN (SELECT * FROM {{facts}} WHERE source = 'metered') t ON t.origin = x.origin AND t."row" = x."row"
UNION ALL
SELECT {_columns(_unmatched_row())}
FROM rc_row i ANTI JOIN rc_pair p ON p.b = i.b
LEFT JOIN rc_known k ON k.b = i.b LEFT JOIN rc_tag g ON g.b = i.b
LEFT JOIN rc_owner o ON o.k = coalesce('machine ' || k.m, g.k)
JOIN {{facts}} r ON r.source = 'billed' AND r.origin = i.origin AND r."row" = i."row"
UNION ALL
SELECT {_columns(_uncovered_piece())}
FROM rc_free p JOIN rc_stretch x ON x.m = p.m {join_edges("p.s", "p.e")}
JOIN {{facts}} t ON t.source = 'metered' AND t.origin = x.origin AND t."row" = x."row"
UNION ALL
SELECT {_columns({name: f'r."{name}"' for name in COLUMNS.names})} FROM {{facts}} r
WHERE r.source = 'added' OR (r.source = 'metered' AND r."end" <= r."start")
"""


def assemble_actual(connection: duckdb.DuckDBPyConnection, facts: str, into: str, *, stored: bool = True) -> None:
    """Create the table ``into``: facts (:data:`router.showback.facts.COLUMNS`) of what counts as spent.

    It is a view where it is not to be ``stored``.
    """
    connection.execute(_OWNERS.format(facts=facts))
    connection.execute(_ACTUAL.format(facts=facts, into=into, relation="TABLE" if stored else "VIEW"))


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
    define_macros(connection)
    load_match_inputs(connection, facts)
    levels.match_rows(connection, outside)
    spread_rows(connection)
    assemble_actual(connection, facts, into, stored=stored)


def known_kinds(
    connection: duckdb.DuckDBPyConnection, facts: str, outside: OutsideEvidence, month: str
) -> dict[ResourceKind, str]:
    """Return the kinds of which the month's bills know resources by their ids, and the last books that these are in."""
    define_macros(connection)
    load_match_inputs(connection, facts)
    levels.match_resources(connection, outside)
    return read_known_kinds(connection, month)


def read_known_kinds(connection: duckdb.DuckDBPyConnection, month: str) -> dict[ResourceKind, str]:
    """Return those of :func:`known_kinds` once :func:`reconcile` has matched the facts."""
    found = "SELECT cloud, what, max(metered) FROM rc_sure_kind WHERE billed = $1 GROUP BY ALL ORDER BY ALL"
    return {(cloud, what): last for cloud, what, last in connection.execute(found, [month]).fetchall()}
