"""Match rows of bills with metered time by level: resource and hour, tags, kind of machine and day.

A level looks at the rows that no level before it has matched, and, but for the first, at the time that none has
covered. All rows of a level see the same time, so that their order does not matter; several may cover the same time (an
hour of a machine that is half on a commitment has two rows).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.files.duckdb_session import sql_text
from router.showback.facts import DAY_US, WEEKS

if TYPE_CHECKING:
    import duckdb


class MatchLevel(StrEnum):
    """The level at which a row was matched, the surest first."""

    RESOURCE = "resource"
    """The provider's id of the resource, and hours that overlap."""
    TAGS = "tags"
    """The attempt or job in its tags, and time that overlaps; of what is no machine's usage, the tags alone."""
    DAY = "sku_day"
    """Account, region, kind of machine or SKU, and the day."""
    NONE = "none"
    """Unmatched: the row stands as the bill has it."""


# A kind of resource: the cloud, where metering names one, and what it is.
ResourceKind = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class OutsideEvidence:
    """Evidence from outside of the facts, where these are a part of books.

    ``clouds``: all that metering names. ``kinds``: resources of them are known by the cloud's ids.
    """

    clouds: frozenset[str]
    kinds: frozenset[ResourceKind] = frozenset()


# ARNs and paths end in the id that others write alone. Of a store (s3://BUCKET/PREFIX, abfs://NAME@ACCOUNT.HOST/PREFIX)
# bills name the bucket or the account.
_KEYS: Final = """
CREATE OR REPLACE TEMP TABLE {table}_key AS
SELECT {id}, s, e, resource AS k, true AS whole FROM {table} WHERE resource IS NOT NULL
UNION ALL
SELECT {id}, s, e, tail, false FROM (SELECT *, split_part(resource, '/', -1) AS tail FROM {table})
WHERE tail <> resource AND NOT ends_with(resource, '/') AND NOT {store}
UNION ALL
SELECT {id}, s, e, coalesce(nullif(regexp_extract(resource, '://[^/]*@([^./]+)', 1), ''),
                            nullif(regexp_extract(resource, '://([^/@]+)', 1), '')), true
FROM {table} WHERE {store}
"""
_STORE: Final = "(contains(resource, '://') AND NOT starts_with(resource, 'http'))"

# Usage of a bucket is not about the copies that were read from it; usage of a machine is about its job.
_IS_ABOUT: Final = "(r.what = t.what OR t.what = 'machine' OR NOT r.is_usage)"

_BY_RESOURCE: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_found AS
SELECT r.b, t.m, t.m AS f, greatest(r.s, t.s) AS os, least(r.e, t.e) AS oe, r.is_usage AND r.what = t.what AS covers
FROM rc_row_key rk JOIN rc_stretch_key tk ON rk.k = tk.k AND rk.s < tk.e AND tk.s < rk.e AND (rk.whole OR tk.whole)
JOIN rc_row r ON r.b = rk.b JOIN rc_stretch t ON t.m = tk.m
WHERE {_IS_ABOUT}
      AND (r.cloud IS NULL OR t.cloud IS NULL OR r.cloud = t.cloud OR r.cloud NOT IN (SELECT cloud FROM rc_cloud))
QUALIFY r.what = t.what OR NOT bool_or(r.what = t.what) OVER (PARTITION BY r.b)
"""

# A known machine is never another one: what is billed of it outside its metered hours stays unmatched.
_KNOWN: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_known AS
SELECT rk.b, min(tk.m) AS m FROM rc_row_key rk JOIN rc_stretch_key tk ON rk.k = tk.k AND (rk.whole OR tk.whole)
JOIN rc_row r ON r.b = rk.b JOIN rc_stretch t ON t.m = tk.m
ANTI JOIN rc_pair p ON p.b = rk.b WHERE {_IS_ABOUT} GROUP BY rk.b
"""

# Where resources of a kind are known by the cloud's ids, another id is another thing, which nobody may have metered. A
# month's bills tell of the books that a report of the month looks at: its own, and those of nine weeks before.
_SURE_KINDS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_sure_kind AS
SELECT DISTINCT r.month AS billed, t.month AS metered, t.cloud, t.what
FROM rc_pair p JOIN rc_stretch t USING (m) JOIN rc_row r USING (b)
WHERE p.covers AND t.month >= strftime((r.month || '-01')::DATE - INTERVAL {7 * WEEKS} DAY, '%Y-%m')
"""
_SURE: Final = """
CREATE OR REPLACE TEMP TABLE rc_sure AS
SELECT m FROM rc_stretch t WHERE resource IS NOT NULL AND EXISTS (
    SELECT 1 FROM (SELECT cloud, what FROM rc_sure_kind UNION SELECT cloud, what FROM (VALUES {kinds}) k(cloud, what)) n
    WHERE n.what = t.what AND n.cloud IS NOT DISTINCT FROM t.cloud)
"""

# Kinds for which it matters that no ids of them are known: rows with other ids were matched with them.
_UNSURE: Final = f"""
SELECT DISTINCT t.cloud, t.what FROM rc_pair p JOIN rc_stretch t USING (m) JOIN rc_row r USING (b)
WHERE p.level IN ('{MatchLevel.TAGS}', '{MatchLevel.DAY}') AND r.resource IS NOT NULL AND t.resource IS NOT NULL
ORDER BY ALL
"""

_TAGS: Final = """
CREATE OR REPLACE TEMP TABLE rc_tag AS
SELECT r.b, CASE WHEN r.attempt IN (SELECT attempt FROM rc_stretch WHERE attempt IS NOT NULL)
                 THEN 'attempt ' || r.attempt ELSE 'job ' || r.job END AS k
FROM rc_row r ANTI JOIN rc_pair p ON p.b = r.b
WHERE r.job IS NOT NULL OR r.attempt IS NOT NULL
"""

_BY_TAGS: Final = """
CREATE OR REPLACE TEMP TABLE rc_found AS
WITH free AS (
    SELECT f.*, t.what, t.team, t.instance_type, f.m IN (SELECT m FROM rc_sure) AS sure,
           unnest(['attempt ' || t.attempt, 'job ' || t.job]) AS k
    FROM rc_free f JOIN rc_stretch t ON t.m = f.m)
SELECT r.b, f.m, f.f, greatest(r.s, f.s) AS os, least(r.e, f.e) AS oe, true AS covers
FROM rc_tag g JOIN rc_row r ON r.b = g.b JOIN free f ON f.k = g.k AND r.s < f.e AND f.s < r.e
WHERE r.b NOT IN (SELECT b FROM rc_known) AND r.is_usage AND r.what = f.what AND coalesce(r.team = f.team, true)
      AND coalesce(r.instance_type = f.instance_type, true) AND NOT (f.sure AND r.resource IS NOT NULL)
"""

# Rows of a day have that day's machines; rows of hours those of their hours, and where none ran those of the day.
_BY_DAY: Final = """
CREATE OR REPLACE TEMP TABLE rc_found AS
WITH rows AS (
    SELECT r.*, unnest(range(r.s // {day}, (r.e - 1) // {day} + 1)) AS d
    FROM rc_row r ANTI JOIN rc_pair p ON p.b = r.b
    WHERE r.is_usage AND r.e > r.s AND r.region IS NOT NULL AND r.b NOT IN (SELECT b FROM rc_known)),
row_keys AS (
    SELECT b, s, e, d, what, account, region, market, team, job, resource, 'type ' || instance_type AS k FROM rows
    WHERE instance_type IS NOT NULL
    UNION ALL
    SELECT b, s, e, d, what, account, region, market, team, job, resource, 'sku ' || sku FROM rows
    WHERE instance_type IS NULL AND sku IS NOT NULL),
free AS (
    SELECT f.*, t.what, t.account, t.region, t.market, t.team, t.job, t.instance_type, t.sku,
           f.m IN (SELECT m FROM rc_sure) AS sure,
           unnest(range(f.s // {day}, (f.e - 1) // {day} + 1)) AS d
    FROM rc_free f JOIN rc_stretch t ON t.m = f.m WHERE t.region IS NOT NULL),
free_keys AS (
    SELECT * EXCLUDE (instance_type, sku), unnest(['type ' || instance_type, 'sku ' || sku]) AS k FROM free)
SELECT DISTINCT r.b, f.m, f.f, greatest({row_start}, f.s) AS os, least({row_end}, f.e) AS oe, true AS covers
FROM row_keys r JOIN free_keys f ON r.k = f.k AND r.region = f.region AND r.d = f.d
WHERE r.what = f.what AND {row_start} < f.e AND f.s < {row_end}
      AND coalesce(r.account = f.account, true) AND coalesce(r.market = f.market, true)
      AND coalesce(r.team = f.team, true) AND coalesce(r.job = f.job, true)
      AND NOT (f.sure AND r.resource IS NOT NULL)
"""
_AT_THE_TIME: Final = {"row_start": "r.s", "row_end": "r.e", "day": DAY_US}
_THAT_DAY: Final = {
    "row_start": f"((r.s // {DAY_US}) * {DAY_US})",
    "row_end": f"(((r.e - 1) // {DAY_US} + 1) * {DAY_US})",
    "day": DAY_US,
}

# Row b lies on stretch m from os until oe; of that, fs until fe is time that no row before it in order has covered.
_INSERT_PAIRS: Final = """
INSERT INTO rc_pair
SELECT '{level}', b, m, os, oe, covers,
       CASE WHEN covers AND oe > coalesce(reached, os) THEN greatest(os, coalesce(reached, os)) END,
       CASE WHEN covers AND oe > coalesce(reached, os) THEN oe END
FROM (SELECT *, max(oe) OVER (PARTITION BY f, covers ORDER BY os, oe DESC, b
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM rc_found)
"""

_UNCOVERED: Final = """
CREATE OR REPLACE TEMP TABLE rc_free AS
WITH covered AS (
    SELECT f, os, oe, max(oe) OVER (PARTITION BY f ORDER BY os, oe DESC, b
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM rc_found WHERE covers),
gaps AS (
    SELECT f.m, coalesce(c.reached, f.s) AS s, c.os AS e FROM covered c JOIN rc_free f ON f.f = c.f
    WHERE c.os > coalesce(c.reached, f.s)
    UNION ALL
    SELECT f.m, max(c.oe), any_value(f.e) FROM covered c JOIN rc_free f ON f.f = c.f GROUP BY f.f, f.m
    HAVING max(c.oe) < any_value(f.e)
    UNION ALL
    SELECT f.m, f.s, f.e FROM rc_free f ANTI JOIN covered c ON c.f = f.f)
SELECT row_number() OVER () AS f, m, s, e FROM gaps
"""

_LEVELS: Final = f"""
CREATE OR REPLACE TEMP TABLE rc_level AS
SELECT r.b, CASE WHEN p.level IS NOT NULL THEN p.level
                 WHEN g.b IS NOT NULL AND NOT (r.is_usage AND r.what = 'machine') THEN '{MatchLevel.TAGS}'
                 ELSE '{MatchLevel.NONE}' END AS level
FROM rc_row r LEFT JOIN (SELECT b, any_value(level) AS level FROM rc_pair GROUP BY b) p ON p.b = r.b
LEFT JOIN (SELECT DISTINCT g.b FROM rc_tag g JOIN (
               SELECT 'attempt ' || attempt AS k FROM rc_stretch UNION SELECT 'job ' || job FROM rc_stretch) USING (k)
          ) g ON g.b = r.b
"""


def match_rows(connection: duckdb.DuckDBPyConnection, outside: OutsideEvidence | None = None) -> None:
    """Match ``rc_row`` with ``rc_stretch``.

    Creates ``rc_pair`` (which row lies on which stretch, and which time it is the first to cover), ``rc_free`` (metered
    time that no row covers) and ``rc_level`` (how each row was matched).
    """
    match_resources(connection, outside)
    connection.execute(_KNOWN)
    connection.execute(_SURE.format(kinds=_values(outside.kinds if outside is not None else ())))
    connection.execute(_TAGS)
    _apply_level(connection, MatchLevel.TAGS, _BY_TAGS)
    _apply_level(connection, MatchLevel.DAY, _BY_DAY.format(**_AT_THE_TIME))
    _apply_level(connection, MatchLevel.DAY, _BY_DAY.format(**_THAT_DAY))
    connection.execute(_LEVELS)
    for table in ("rc_row_key", "rc_stretch_key", "rc_cloud", "rc_found", "rc_sure"):
        connection.execute(f"DROP TABLE {table}")


def match_resources(connection: duckdb.DuckDBPyConnection, outside: OutsideEvidence | None = None) -> None:
    """Match what one id names, the first level, and create ``rc_sure_kind``: of which kinds bills know resources."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE rc_pair "
        "(level VARCHAR, b BIGINT, m BIGINT, os BIGINT, oe BIGINT, covers BOOLEAN, fs BIGINT, fe BIGINT)"
    )
    connection.execute("CREATE OR REPLACE TEMP TABLE rc_free AS SELECT m AS f, m, s, e FROM rc_stretch")
    clouds = "SELECT DISTINCT cloud FROM rc_stretch WHERE cloud IS NOT NULL"
    if outside is not None:
        names = ", ".join(f"({sql_text(name)})" for name in sorted(outside.clouds)) or "(NULL)"
        clouds = f"SELECT cloud FROM (VALUES {names}) c(cloud) WHERE cloud IS NOT NULL"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE rc_cloud AS {clouds}")
    connection.execute(_KEYS.format(table="rc_row", id="b", store=_STORE))
    connection.execute(_KEYS.format(table="rc_stretch", id="m", store=_STORE))
    _apply_level(connection, MatchLevel.RESOURCE, _BY_RESOURCE)
    connection.execute(_SURE_KINDS)


def unsure_kinds(connection: duckdb.DuckDBPyConnection) -> frozenset[ResourceKind]:
    """Return the kinds of which rows with other ids took the time: with evidence from outside they may not have."""
    return frozenset((cloud, what) for cloud, what in connection.execute(_UNSURE).fetchall())


def _values(kinds: Collection[ResourceKind]) -> str:
    rows = [f"({'NULL' if cloud is None else sql_text(cloud)}, {sql_text(what)})" for cloud, what in kinds]
    return ", ".join(sorted(rows)) or "(NULL, NULL)"


def _apply_level(connection: duckdb.DuckDBPyConnection, level: MatchLevel, finding: str) -> None:
    connection.execute(finding)
    connection.execute(_INSERT_PAIRS.format(level=level.value))
    connection.execute(_UNCOVERED)
