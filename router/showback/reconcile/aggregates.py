"""Aggregate facts for the analysis of variances, keeping apart the reasons of a difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.files.duckdb_session import rows_of
from router.ledger.entry import CostBasis
from router.showback.facts import AMOUNT_SQL, MONEY_SQL

if TYPE_CHECKING:
    import duckdb


class FactSide(StrEnum):
    """The facts that an aggregate sums."""

    PLANNED = "planned"
    METER = "meter"
    """All that was metered, whether a bill has it by now or not: beside the bridge, not in it."""
    METERED = "metered"
    """Metered and on no bill."""
    ADDED = "added"
    BILLED = "billed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactAggregate:
    """The sum of ``rows`` facts that have the same words but for their time.

    ``money`` is None where no price is known, ``hours`` and ``gpu_hours`` where none of them has any; ``start`` is the
    earliest. Names are as in :data:`router.showback.facts.COLUMNS`; ``corrected``: they correct something.
    """

    side: FactSide
    currency: str
    money: Decimal | None
    hours: Decimal | None = None
    gpu_hours: Decimal | None = None
    category: str = "Usage"
    corrected: bool = False
    what: str = "machine"
    use: str | None = None
    team: str | None = None
    project: str | None = None
    cost_center: str | None = None
    job: str | None = None
    attempt: str | None = None
    cloud: str | None = None
    region: str | None = None
    instance_type: str | None = None
    market: str | None = None
    accelerator: str | None = None
    start: datetime
    rows: int = 1


GROUPING_WORDS: Final = (
    "team",
    "project",
    "cost_center",
    "job",
    "attempt",
    "cloud",
    "region",
    "instance_type",
    "market",
    "accelerator",
)

_GROUP_COLUMNS: Final = ("currency", "category", "what", "use", *GROUPING_WORDS)
_GROUP_SQL: Final = ", ".join(f'"{name}"' for name in _GROUP_COLUMNS)

_FACTS: Final = f"""
SELECT {{side}} AS side, {_GROUP_SQL}, corrects IS NOT NULL AS corrected, "start", {{basis}}::{MONEY_SQL} AS money,
       hours::{AMOUNT_SQL} AS hours, gpu_hours::{AMOUNT_SQL} AS gpu_hours, 1 AS rows
FROM {{table}} WHERE ($month IS NULL OR month = $month) AND {{which}}
"""

# The same on both bases, summed: a fact may have a price on one and none on the other.
_SUMMED_SIDE: Final = f"""
SELECT {{side}} AS side, {_GROUP_SQL}, corrects IS NOT NULL AS corrected, billed IS NULL AS no_billed,
       effective IS NULL AS no_effective, min("start") AS "start", sum(billed) AS billed, sum(effective) AS effective,
       sum(hours) AS hours, sum(gpu_hours) AS gpu_hours, count(*)::BIGINT AS rows
FROM {{table}} WHERE {{which}} GROUP BY ALL
"""

_OF_SUMMED: Final = f"""
SELECT side, {_GROUP_SQL}, corrected, "start", {{basis}}::{MONEY_SQL} AS money, hours::{AMOUNT_SQL} AS hours,
       gpu_hours::{AMOUNT_SQL} AS gpu_hours, rows
FROM {{table}}
"""

_GRAINS: Final = f"""
SELECT side, {_GROUP_SQL}, corrected, min("start") AS "start", sum(money) AS money, sum(hours) AS hours,
       sum(gpu_hours) AS gpu_hours, sum(rows)::BIGINT AS rows
FROM ({{parts}}) GROUP BY side, {_GROUP_SQL}, corrected, money IS NULL ORDER BY ALL
"""


def aggregate_facts(
    connection: duckdb.DuckDBPyConnection, basis: CostBasis, *, planned: str, month: str | None = None
) -> tuple[FactAggregate, ...]:
    """Return the aggregates of ``planned`` and of the tables ``facts`` and ``actual``, all on one basis.

    :func:`router.showback.reconcile.matching.reconcile` has made ``actual`` of ``facts``; ``planned`` is a relation of
    planned facts, cut by time. Facts count that are in the books of ``month`` (None: of all).
    """
    parts = (
        _FACTS.format(side="'planned'", basis=basis, table=planned, which="true"),
        _FACTS.format(side="'meter'", basis=basis, table="facts", which="source = 'metered'"),
        _FACTS.format(side="source", basis=basis, table="actual", which="source <> 'planned'"),
    )
    return _aggregates(connection, parts, {"month": month})


def summed_sides_sql(facts: str, actual: str) -> str:
    """Return the SQL of what :func:`aggregate_summed` reads, of the ``facts`` and ``actual`` of a month."""
    metered = _SUMMED_SIDE.format(side="'meter'", table=facts, which="source = 'metered'")
    return f"{metered} UNION ALL {_SUMMED_SIDE.format(side='source', table=actual, which='true')}"


def aggregate_summed(
    connection: duckdb.DuckDBPyConnection, basis: CostBasis, *, planned: str, summed: str
) -> tuple[FactAggregate, ...]:
    """Return the aggregates of :func:`aggregate_facts` of a month, whose sides were summed before."""
    parts = (
        _FACTS.format(side="'planned'", basis=basis, table=planned, which="true"),
        _OF_SUMMED.format(basis=basis, table=summed),
    )
    return _aggregates(connection, parts, {"month": None})


def _aggregates(
    connection: duckdb.DuckDBPyConnection, parts: Iterable[str], values: dict[str, object]
) -> tuple[FactAggregate, ...]:
    rows = rows_of(connection.sql(_GRAINS.format(parts=" UNION ALL ".join(parts)), params=values))
    return tuple(FactAggregate(**{**row, "side": FactSide(row["side"])}) for row in rows)
