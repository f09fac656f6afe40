"""Build rollups: facts summed by all their words but the single machine, so that a report reads thousands of rows.

There are two, as SQL for DuckDB. ``sums`` is exact, to the last digit of the facts. ``days`` spreads each fact over the
days (UTC) of its time, in billionths: the days of a fact add up to it. Both can be summed again. Pure.
"""

from __future__ import annotations

from typing import Final

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
    "correction": "corrects IS NOT NULL",
    "route": "CASE WHEN what = 'egress' THEN CASE WHEN contains(reference, ' -> ') THEN reference ELSE region END END",
}
AMOUNTS: Final = ("quantity", "hours", "gpu_hours", "useful", "lost", "billed", "effective", "list", "on_demand")
# Costs of only those facts whose on-demand price is known, from which savings are computed.
_COMPARED: Final = ("billed", "effective")

DAY_KEYS: Final = ("day", "month", "source", "category", "team", "project", "job", "cloud", "what", "currency")
_DAY_AMOUNTS: Final = ("billed", "effective", "hours", "count")
_NANO: Final = 1_000_000_000
_NANOS: Final = "DECIMAL(38, 9)"


def compared_column(name: str) -> str:
    """Return the column of ``sums`` with that cost of the facts whose on-demand price is known."""
    return f"{name}_compared"


def sums_sql(facts: str) -> str:
    """Return the SQL of ``sums``; ``facts`` is a relation with the columns of facts."""
    keys = ", ".join(f"{_COMPUTED[name]} AS {name}" if name in _COMPUTED else name for name in KEYS)
    amounts = ", ".join(f"sum({name}) AS {name}" for name in AMOUNTS)
    compared_sums = ", ".join(f"sum({n}) FILTER (on_demand IS NOT NULL) AS {compared_column(n)}" for n in _COMPARED)
    return (
        f"SELECT {keys}, count(*)::BIGINT AS facts, {amounts}, {compared_sums}, min(start) AS first_start, "
        f'max("end") AS last_end, max(recorded_at) AS recorded_at FROM {facts} GROUP BY ALL'
    )


def sums_again_sql(sums: str, keys: tuple[str, ...] = KEYS) -> str:
    """Return the SQL of sums of sums, by fewer keys where wanted."""
    names = (*AMOUNTS, *(compared_column(name) for name in _COMPARED))
    amounts = ", ".join(f"sum({name}) AS {name}" for name in names)
    return (
        f"SELECT {', '.join(keys)}, sum(facts)::BIGINT AS facts, {amounts}, min(first_start) AS first_start, "
        f"max(last_end) AS last_end, max(recorded_at) AS recorded_at FROM {sums} GROUP BY ALL"
    )


_SPREAD: Final = {
    "billed": "money",
    "effective": "money",
    "list": "money",
    "on_demand": "money",
    "quantity": "amount",
    "hours": "amount",
    "gpu_hours": "amount",
    "useful": "amount",
    "lost": "amount",
}


def planned_sql(facts: str, windows: str) -> str:
    """Return the SQL of planned facts cut by time.

    A fact becomes one for each of the ``windows`` (rows of month, begin and end in microseconds) that it lies in, whose
    amounts are its share of the time. Needs the macros of :mod:`router.showback.reconcile.exact`.
    """
    cut = ", ".join(
        f"CASE WHEN a = s AND b = e THEN {name} ELSE rc_{kind}(rc_between(rc_{kind}_units({name}), a, b, s, e)) END "
        f"AS {name}"
        for name, kind in _SPREAD.items()
    )
    return f"""
SELECT * EXCLUDE (s, e, a, b, window_month)
       REPLACE (window_month AS month, make_timestamptz(a) AS start, make_timestamptz(b) AS "end", {cut})
FROM (SELECT f.*, w.window_month, epoch_us(f.start) AS s, epoch_us(f."end") AS e,
             greatest(epoch_us(f.start), w.begins) AS a, least(epoch_us(f."end"), w.ends) AS b
      FROM (FROM {facts} WHERE source = 'planned') f, (VALUES {windows}) w(window_month, begins, ends)) WHERE a < b"""


def days_sql(facts: str) -> str:
    """Return the SQL of what was spent a day, without corrections of other months and planned facts.

    ``count`` is how many facts began on the day.
    """
    words = ", ".join(name for name in DAY_KEYS if name != "day")
    money = ", ".join(f"({name}::{_NANOS} * {_NANO})::HUGEINT AS {name}" for name in ("billed", "effective"))
    spent = "source <> 'planned' AND corrects IS NULL"
    return f"""
WITH spent AS (
    SELECT {words}, {money}, hours::DOUBLE AS hours, epoch_us(start) AS begins, epoch_us("end") AS ends,
           {_day_of("start")} AS first_day, {_day_of('"end" - INTERVAL 1 microsecond')} AS last_day
    FROM {facts} WHERE {spent}
), whole AS (
    SELECT first_day AS day, {words}, billed, effective, hours, 1 AS count FROM spent WHERE last_day <= first_day
), parts AS (
    SELECT {words}, billed, effective, hours, begins, ends, first_day,
           unnest(range(first_day::BIGINT, last_day::BIGINT + 1)) AS day
    FROM spent WHERE last_day > first_day
), shares AS (
    SELECT *, greatest(day * {_DAY_US} - begins, 0)::HUGEINT AS before,
           least((day + 1) * {_DAY_US}, ends)::HUGEINT - begins AS until, (ends - begins)::HUGEINT AS whole FROM parts
), cut AS (
    SELECT day, {words}, billed * until // whole - billed * before // whole AS billed,
           effective * until // whole - effective * before // whole AS effective,
           hours * (until - before)::DOUBLE / whole::DOUBLE AS hours, (day = first_day)::INTEGER AS count FROM shares
), together AS (FROM whole UNION ALL FROM cut)
SELECT day::INTEGER AS day, {words}, {", ".join(_day_sum(name) for name in _DAY_AMOUNTS)} FROM together GROUP BY ALL"""


def days_again_sql(days: str) -> str:
    """Return the SQL of sums of days."""
    amounts = ", ".join(
        f"sum({name})::BIGINT AS {name}" if name == "count" else f"sum({name}) AS {name}" for name in _DAY_AMOUNTS
    )
    return f"SELECT {', '.join(DAY_KEYS)}, {amounts} FROM {days} GROUP BY ALL"


_DAY_US = 86_400_000_000


def _day_of(moment: str) -> str:
    """Return the SQL of days since 1970 in UTC, whatever the connection's time zone."""
    return f"(epoch_us({moment}) // {_DAY_US})"


def _day_sum(name: str) -> str:
    if name == "count":
        return "sum(count)::BIGINT AS count"
    if name == "hours":
        return "sum(hours)::DECIMAL(38, 9) AS hours"
    # This makes dollars of billionths without a division that would round.
    return f"(sum({name})::DECIMAL(38, 0) * 0.000000001::{_NANOS})::{_NANOS} AS {name}"
