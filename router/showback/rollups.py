"""Build rollups: facts summed by all their words but the single machine, so that a report reads thousands of rows.

There are two, as SQL for DuckDB. ``sums`` is exact, to the last digit of the facts. ``days`` spreads each fact over the
days (UTC) of its time, in billionths and the last day with what is left: the days of a fact add up to it exactly. Both
can be summed again. Pure.
"""

from __future__ import annotations

from typing import Final

from router.files.duckdb_session import sql_list
from router.ledger.entry import UNUSED_USES
from router.showback.facts import AMOUNT_SQL, DAY_US, MONEY_SQL

# The words of a row of ``sums``, beside its sums. ``route``: of data that was moved, from where to where.
KEYS: Final = (
    "month",
    "source",
    "state",
    "category",
    "correction",
    "team",
    "project",
    "cost_center",
    "job",
    "job_digest",
    "plan",
    "attempt",
    "what",
    "use",
    "cloud",
    "account",
    "region",
    "instance_type",
    "market",
    "accelerator",
    "unit",
    "useful_unit",
    "currency",
    "unpriced",
    "route",
    "split_method",
)
_COMPUTED: Final = {
    "committed": f"coalesce(market = 'reserved' OR use IN {sql_list(UNUSED_USES)}, false)",
    "correction": "corrects IS NOT NULL",
    "route": "CASE WHEN what = 'egress' THEN CASE WHEN contains(reference, ' -> ') THEN reference ELSE region END END",
}
_TYPES: Final = {
    **dict.fromkeys(("quantity", "hours", "gpu_hours", "useful", "lost"), AMOUNT_SQL),
    **dict.fromkeys(("billed", "effective", "list", "on_demand"), MONEY_SQL),
}
AMOUNTS: Final = tuple(_TYPES)
# Costs of only those facts whose on-demand price is known, from which savings are computed.
_COMPARED: Final = ("billed", "effective")

DAY_KEYS: Final = (
    "day",
    "month",
    "source",
    "category",
    "committed",
    "correction",
    "team",
    "project",
    "job",
    "cloud",
    "what",
    "currency",
)
_DAY_AMOUNTS: Final = ("billed", "effective", "hours", "count")
_NANO: Final = 1_000_000_000
_NANOS: Final = "DECIMAL(38, 9)"


def compared_column(name: str) -> str:
    """Return the column of ``sums`` with that cost of the facts whose on-demand price is known."""
    return f"{name}_compared"


def sums_sql(facts: str) -> str:
    """Return the SQL of ``sums``; ``facts`` is a relation with the columns of facts."""
    keys = ", ".join(_key(name) for name in KEYS)
    # One type for all sums: DuckDB rounds the union of two decimals to the places of the narrower.
    amounts = ", ".join(f"sum({name})::{_TYPES[name]} AS {name}" for name in AMOUNTS)
    compared_sums = ", ".join(
        f"sum({name}) FILTER (on_demand IS NOT NULL)::{MONEY_SQL} AS {compared_column(name)}" for name in _COMPARED
    )
    return (
        f"SELECT {keys}, count(*)::BIGINT AS facts, {amounts}, {compared_sums}, min(start) AS first_start, "
        f'max("end") AS last_end, max(recorded_at) AS recorded_at FROM {facts} GROUP BY ALL'
    )


def _key(name: str) -> str:
    return f"{_COMPUTED[name]} AS {name}" if name in _COMPUTED else name


def sums_again_sql(sums: str) -> str:
    names = (*AMOUNTS, *(compared_column(name) for name in _COMPARED))
    amounts = ", ".join(f"sum({name}) AS {name}" for name in names)
    return (
        f"SELECT {', '.join(KEYS)}, sum(facts)::BIGINT AS facts, {amounts}, min(first_start) AS first_start, "
        f"max(last_end) AS last_end, max(recorded_at) AS recorded_at FROM {sums} GROUP BY ALL"
    )


def planned_sql(facts: str, windows: str, cuts: str) -> str:
    """Return the SQL of planned facts cut by time.

    A fact becomes one for each of the ``windows`` (rows of month, begin, until and end in microseconds) that it lies
    in, whose amounts are its share of the time before ``until``. ``cuts`` has rows of plan, job and the moment until
    which their facts count; before the end where it is null. Needs the macros of
    :mod:`router.showback.facts`.
    """
    kinds = {name: "money" if kind == MONEY_SQL else "amount" for name, kind in _TYPES.items()}
    parts = ", ".join(
        f"CASE WHEN a = s AND b = e THEN {name}::{_TYPES[name]} "
        f"ELSE rc_{kind}(rc_between(rc_{kind}_units({name}), a, b, s, e)) END AS {name}"
        for name, kind in kinds.items()
    )
    until = (
        "CASE WHEN c.cut_plan IS NULL THEN w.until WHEN c.cut_at IS NULL THEN w.ends ELSE least(w.until, c.cut_at) END"
    )
    return f"""
SELECT * EXCLUDE (s, e, a, b, window_month)
       REPLACE (window_month AS month, make_timestamptz(a) AS start, make_timestamptz(b) AS "end", {parts})
FROM (SELECT f.*, w.window_month, epoch_us(f.start) AS s, epoch_us(f."end") AS e,
             greatest(epoch_us(f.start), w.begins) AS a, least(epoch_us(f."end"), {until}) AS b
      FROM (FROM {facts} WHERE source = 'planned') f
      LEFT JOIN (VALUES {cuts}) c(cut_plan, cut_job, cut_at) ON f.plan = c.cut_plan AND f.job = c.cut_job
      CROSS JOIN (VALUES {windows}) w(window_month, begins, until, ends))
WHERE a < b"""


def days_sql(facts: str) -> str:
    """Return the SQL of what was spent a day, without planned facts.

    ``count`` is how many facts began on the day.
    """
    words = ", ".join(name for name in DAY_KEYS if name != "day")
    keys = ", ".join(_key(name) for name in DAY_KEYS if name != "day")
    money = ", ".join(f"{name}::{MONEY_SQL} AS {name}" for name in ("billed", "effective"))
    return f"""
WITH spent AS (
    SELECT {keys}, {money}, hours::DOUBLE AS hours, epoch_us(start) AS begins, epoch_us("end") AS ends,
           {_day_of("start")} AS first_day, {_day_of('"end" - INTERVAL 1 microsecond')} AS last_day
    FROM {facts} WHERE source <> 'planned'
), whole AS (
    SELECT first_day AS day, {words}, billed, effective, hours, 1 AS count FROM spent WHERE last_day <= first_day
), parts AS (
    SELECT {words}, billed, effective, hours, begins, ends, first_day,
           unnest(range(first_day::BIGINT, last_day::BIGINT + 1)) AS day
    FROM spent WHERE last_day > first_day
), shares AS (
    SELECT *, greatest(day * {DAY_US} - begins, 0)::HUGEINT AS before,
           least((day + 1) * {DAY_US}, ends)::HUGEINT - begins AS until, (ends - begins)::HUGEINT AS whole FROM parts
), cut AS (
    SELECT day, {words}, {_between("billed")} AS billed, {_between("effective")} AS effective,
           hours * (until - before)::DOUBLE / whole::DOUBLE AS hours, (day = first_day)::INTEGER AS count FROM shares
), together AS (FROM whole UNION ALL FROM cut)
SELECT day::INTEGER AS day, {words}, {", ".join(_day_sum(name) for name in _DAY_AMOUNTS)} FROM together GROUP BY ALL"""


def days_again_sql(days: str) -> str:
    amounts = ", ".join(
        f"sum({name})::BIGINT AS {name}" if name == "count" else f"sum({name}) AS {name}" for name in _DAY_AMOUNTS
    )
    return f"SELECT {', '.join(DAY_KEYS)}, {amounts} FROM {days} GROUP BY ALL"


def _day_of(moment: str) -> str:
    """Return the SQL of days since 1970 in UTC, whatever the connection's time zone."""
    return f"(epoch_us({moment}) // {DAY_US})"


def _day_sum(name: str) -> str:
    if name == "count":
        return "sum(count)::BIGINT AS count"
    if name == "hours":
        return "sum(hours)::DECIMAL(38, 9) AS hours"
    return f"sum({name})::{MONEY_SQL} AS {name}"


def _between(name: str) -> str:
    """Return the SQL of the part of an amount between two moments: what is reached until the one, less the other.

    At the end all of it is reached, with all its digits; before it whole billionths.
    """
    nanos = f"({name}::{_NANOS} * {_NANO})::HUGEINT"

    def reached(moment: str) -> str:
        # A product makes dollars of billionths; a division would round.
        return f"(({nanos} * {moment} // whole)::DECIMAL(38, 0) * 0.000000001::{_NANOS})::{MONEY_SQL}"

    return f"CASE WHEN until = whole THEN {name} ELSE {reached('until')} END - {reached('before')}"
