"""Match bills with what was metered, and assemble what counts as spent after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.showback.facts import COLUMNS, define_macros
from router.showback.reconcile import levels, spread
from router.showback.reconcile.levels import OutsideEvidence, ResourceKind
from router.showback.reconcile.spread import AMOUNTS, TIME_AMOUNTS, join_edges, part_of_row, units_between

if TYPE_CHECKING:
    import duckdb

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
    spread.load_match_inputs(connection, facts)
    levels.match_rows(connection, outside)
    spread.spread_rows(connection)
    assemble_actual(connection, facts, into, stored=stored)


def known_kinds(
    connection: duckdb.DuckDBPyConnection, facts: str, outside: OutsideEvidence, month: str
) -> dict[ResourceKind, str]:
    """Return the kinds of which the month's bills know resources by their ids, and the last books that these are in."""
    define_macros(connection)
    spread.load_match_inputs(connection, facts)
    levels.match_resources(connection, outside)
    return read_known_kinds(connection, month)


def read_known_kinds(connection: duckdb.DuckDBPyConnection, month: str) -> dict[ResourceKind, str]:
    """Return those of :func:`known_kinds` once :func:`reconcile` has matched the facts."""
    found = "SELECT cloud, what, max(metered) FROM rc_sure_kind WHERE billed = $1 GROUP BY ALL ORDER BY ALL"
    return {(cloud, what): last for cloud, what, last in connection.execute(found, [month]).fetchall()}
