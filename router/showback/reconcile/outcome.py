"""Read the outcome of matching as values: sums by level, unmatched items on either side, and how far bills reach.

Amounts are converted into another currency at a rate that somebody named; without one a currency stands apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from router.files.duckdb_session import rows_of, sql_list
from router.ledger.entry import UNUSED_USES, CostBasis
from router.showback.apportion import round_fraction
from router.showback.facts import DAY_US
from router.showback.reconcile.levels import MatchLevel
from router.showback.reconcile.variance import FactAggregate

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class MatchLevelSum:
    """Rows of bills that were matched at a level. ``unknown`` of them have no such amount."""

    level: MatchLevel
    currency: str
    rows: int
    amount: Decimal
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedItem:
    """An item without a counterpart.

    Of a bill it is a row (``origin``, ``row``), of FOCUS' ``category``; an unused reservation or commitment is none,
    its use says what it is. Of the meter (``origin`` is the ledger) it is the rest of a machine's attempt or of a disk;
    ``due``: bills of its account reach beyond its end, so that they should have it.
    """

    origin: str
    row: int
    start: datetime
    end: datetime
    what: str
    cloud: str | None
    account: str | None
    region: str | None
    instance_type: str | None
    resource: str | None
    sku: str | None
    team: str | None
    job: str | None
    attempt: str | None
    category: str
    currency: str
    amount: Decimal | None
    due: bool = False


@dataclass(frozen=True, slots=True)
class BillReach:
    """Until when the bills of an account have usage (``through``), by rows in the books of the month."""

    cloud: str | None
    account: str | None
    through: datetime
    rows: int


@dataclass(frozen=True, slots=True)
class PriceComparison:
    """The billed and the metered money of the same time.

    ``invoiced`` is in ``currency``; ``metered`` is at our prices, in ``metered_currency``.
    """

    team: str | None
    job: str | None
    currency: str
    metered_currency: str
    metered: Decimal
    invoiced: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOutcome:
    """The outcome for a month (None: for all).

    ``estimated`` is the part of what was spent that is on no bill, by currency; None where nothing was spent.
    """

    month: str | None
    levels: tuple[MatchLevelSum, ...]
    unmatched: tuple[UnmatchedItem, ...]
    unbilled: tuple[UnmatchedItem, ...]
    reaches: tuple[BillReach, ...]
    compared: tuple[PriceComparison, ...]
    estimated: dict[str, Fraction | None]


_ALONE: Final = "what, cloud, account, region, instance_type, resource, sku, team, job, attempt, category, currency"
_IN: Final = "($month IS NULL OR {0}month = $month)"

_LEVEL_SUMS: Final = f"""
SELECT l.level, f.currency, count(*) AS rows, coalesce(sum({{basis}}), 0) AS amount,
       count(*) - count({{basis}}) AS unknown
FROM rc_level l JOIN rc_row r USING (b)
JOIN facts f ON f.source = 'billed' AND f.origin = r.origin AND f."row" = r."row"
WHERE {_IN.format("f.")} GROUP BY ALL ORDER BY ALL
"""
_UNMATCHED: Final = f"""
SELECT a.origin, a."row", a."start", a."end", {", ".join(f"a.{name.strip()}" for name in _ALONE.split(","))},
       a.{{basis}} AS amount, false AS due
FROM rc_level l JOIN rc_row r USING (b)
JOIN actual a ON a.source = 'billed' AND a.origin = r.origin AND a."row" = r."row"
WHERE l.level = '{MatchLevel.NONE}' AND coalesce(a.use NOT IN {sql_list(UNUSED_USES)}, true) AND {_IN.format("a.")}
ORDER BY abs(amount) DESC NULLS FIRST, a.origin, a."row"
"""
# A bill that names no account may be any account's, and so may metering that names none.
_UNBILLED: Final = f"""
WITH reach AS ({{reach}})
SELECT origin, min("row") AS "row", min("start") AS "start", max("end") AS "end", {_ALONE}, sum({{basis}}) AS amount,
       max("end") <= (SELECT max(through) FROM reach WHERE reach.cloud IS NOT DISTINCT FROM a.cloud
                      AND coalesce(reach.account = a.account, true)) AS due
FROM actual a WHERE source = 'metered' AND {_IN.format("")}
GROUP BY origin, {_ALONE}, attempt, rank, {{basis}} IS NULL
ORDER BY abs(amount) DESC NULLS FIRST, origin, "row"
"""
# Clouds of bills are in the words of what they were matched with. A row for a month does not tell how far it reaches.
_REACH: Final = f"""
SELECT coalesce(t.cloud, r.cloud) AS cloud, r.account,
       make_timestamptz(coalesce(max(r.e) FILTER (r.e - r.s <= {DAY_US}), max(r.e))) AS through, count(*) AS rows
FROM rc_row r LEFT JOIN (
    SELECT p.b, min(t.cloud) AS cloud FROM rc_pair p JOIN rc_stretch t USING (m) GROUP BY p.b) t USING (b)
WHERE r.is_usage AND {_IN.format("r.")} GROUP BY ALL
"""
_COMPARED: Final = f"""
WITH covered AS (
    SELECT p.b, sum(rc_between(t.units, p.fs, p.fe, t.s, t.e)) AS units
    FROM rc_pair p JOIN rc_stretch t USING (m) WHERE p.fs IS NOT NULL GROUP BY p.b),
whose AS (
    SELECT p.b, any_value(t.team) AS team, any_value(t.job) AS job, any_value(t.currency) AS currency
    FROM rc_pair p JOIN rc_stretch t USING (m)
    WHERE p.covers GROUP BY p.b)
SELECT w.team, w.job, f.currency, w.currency AS metered_currency,
       coalesce(sum(rc_money(c.units)), 0) AS metered, coalesce(sum(f.{{basis}}), 0) AS invoiced
FROM whose w LEFT JOIN covered c USING (b) JOIN rc_row r USING (b)
JOIN facts f ON f.source = 'billed' AND f.origin = r.origin AND f."row" = r."row"
WHERE {_IN.format("f.")} AND f.what = 'machine' GROUP BY ALL ORDER BY ALL
"""
_ESTIMATED: Final = f"""
SELECT currency, sum({{basis}}) AS whole, sum({{basis}}) FILTER (source = 'metered') AS part FROM actual
WHERE {_IN.format("")}
GROUP BY 1 ORDER BY 1
"""


def read_outcome(connection: duckdb.DuckDBPyConnection, basis: CostBasis, month: str | None = None) -> MatchOutcome:
    """Return the outcome for the books of ``month``, of the tables ``facts`` and ``actual``.

    Call it after :func:`router.showback.reconcile.matching.reconcile`, with the same connection.
    """

    def query_rows(query: str) -> list[dict[str, Any]]:
        return rows_of(connection.sql(query.format(basis=basis, reach=_REACH), params={"month": month}))

    return MatchOutcome(
        month=month,
        levels=tuple(MatchLevelSum(**{**row, "level": MatchLevel(row["level"])}) for row in query_rows(_LEVEL_SUMS)),
        unmatched=tuple(UnmatchedItem(**row) for row in query_rows(_UNMATCHED)),
        unbilled=tuple(UnmatchedItem(**{**row, "due": bool(row["due"])}) for row in query_rows(_UNBILLED)),
        reaches=tuple(BillReach(**row) for row in query_rows(f"{_REACH} ORDER BY ALL")),
        compared=tuple(PriceComparison(**row) for row in query_rows(_COMPARED)),
        estimated={row["currency"]: _share(row["part"], row["whole"]) for row in query_rows(_ESTIMATED)},
    )


def _share(part: Decimal | None, whole: Decimal | None) -> Fraction | None:
    return Fraction(part or 0) / Fraction(whole) if whole else None


_PLACES = 24


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """A rate of exchange: one unit of a currency is ``rate`` of ``into``.

    Reports have to name its day and its source.
    """

    into: str
    rate: Decimal
    as_of: date
    source: str


def convert_currencies(
    aggregates: Iterable[FactAggregate], rates: Mapping[str, ExchangeRate]
) -> tuple[FactAggregate, ...]:
    """Convert the aggregates of the currencies that ``rates`` has, rounded at the 24th digit; the others stay."""
    return tuple(_convert(aggregate, rates.get(aggregate.currency)) for aggregate in aggregates)


def convert_comparisons(
    comparisons: Iterable[PriceComparison], rates: Mapping[str, ExchangeRate]
) -> tuple[PriceComparison, ...]:
    """Convert either side of the comparisons whose currency ``rates`` has; the others stay."""
    return tuple(_convert_comparison(each, rates) for each in comparisons)


def _convert_comparison(comparison: PriceComparison, rates: Mapping[str, ExchangeRate]) -> PriceComparison:
    billed, metered = rates.get(comparison.currency), rates.get(comparison.metered_currency)
    if billed is not None:
        comparison = replace(comparison, currency=billed.into, invoiced=_at_rate(comparison.invoiced, billed))
    if metered is not None:
        comparison = replace(comparison, metered_currency=metered.into, metered=_at_rate(comparison.metered, metered))
    return comparison


def _convert(aggregate: FactAggregate, rate: ExchangeRate | None) -> FactAggregate:
    if rate is None:
        return aggregate
    money = None if aggregate.money is None else _at_rate(aggregate.money, rate)
    return replace(aggregate, currency=rate.into, money=money)


def _at_rate(money: Decimal, rate: ExchangeRate) -> Decimal:
    return round_fraction(Fraction(money) * Fraction(rate.rate), _PLACES)
