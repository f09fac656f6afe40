"""Explain the variance between plan and invoice: a bridge of reasons without remainder. Pure, exact.

::

    planned + price + quantity + mix + waste + unplanned + credit = actual        what was spent
    actual  + timing                                              = invoiced      what bills say of it by now

The bridge is of one job and currency, in this order. ``R`` is the plan's average rate, its money over its hours; ``p``
its rate at a place (cloud, region, instance type and market together); ``h`` and ``a`` are hours and money of actual
rows at a place. Hours are those of accelerators where plan and meter all know them, else of machines.

===========  =====================================================================================================
waste        money of time that was a kind of waste, at what it cost (by kind: ``startup``, ``idle_allocated``, ...)
credit       credits, taxes, adjustments, corrections of other months; and hours billed in another currency than the
             plan's: their money there, and ``- h R`` here
unplanned    money of what is no machine (disks, egress, storage, fees), less what is planned of it; machines of jobs
             that no plan has
price        ``a - h p`` of the rest, where the plan has the place
quantity     ``sum(h) R - planned``: it ran longer, or on more machines (shorter: below zero)
mix          ``h (p - R)`` at a place of the plan, ``a - h R`` at another: other places or kinds than planned
timing       less what is on no bill: metered, or added by people
===========  =====================================================================================================

A plan's hours include what it allows for start-up, saving and lost work: where as much was wasted as planned, waste is
above zero and quantity below it by as much. What has no price is in no amount: ``unpriced`` counts its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from router.files.duckdb_session import rows_of
from router.ledger.entry import CostBasis
from router.showback.apportion import exact_difference, exact_sum, round_fraction, split_amount
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


_ZERO: Final = Decimal(0)
_PLACES: Final = 24
_SHARED_PLACES: Final = 12
_CREDITS: Final = {"Credit": "credit", "Tax": "tax", "Adjustment": "adjustment"}


class VarianceBucket(StrEnum):
    """A reason of a difference, in the order of the bridge."""

    PRICE = "price"
    QUANTITY = "quantity"
    MIX = "mix"
    WASTE = "waste"
    UNPLANNED = "unplanned"
    CREDIT = "credit"
    TIMING = "timing"


# The kind of the amounts by which hours that are billed in another currency than planned leave one for the other.
OTHER_CURRENCY: Final = (VarianceBucket.CREDIT, "currency")


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceBridge:
    """The bridge of a group in a currency.

    ``group`` has its words, in the order asked for. ``kinds`` are the parts of a bucket that has several, which add up
    to it. ``metered`` is all that was metered, at our prices, whether billed or not.
    """

    group: tuple[str | None, ...]
    currency: str
    planned: Decimal = _ZERO
    metered: Decimal = _ZERO
    buckets: Mapping[VarianceBucket, Decimal] = field(default_factory=dict)
    kinds: Mapping[tuple[VarianceBucket, str], Decimal] = field(default_factory=dict)
    unpriced: int = 0

    @property
    def actual(self) -> Decimal:
        """The money spent: bills, what is on none yet, and what people added."""
        return exact_sum(
            [self.planned, *(each for name, each in self.buckets.items() if name is not VarianceBucket.TIMING)]
        )

    @property
    def invoiced(self) -> Decimal:
        """The money on bills by now, provisional ones too."""
        return exact_sum([self.actual, self.buckets.get(VarianceBucket.TIMING, _ZERO)])


@dataclass(frozen=True, slots=True)
class _Part:
    aggregate: FactAggregate
    currency: str
    bucket: VarianceBucket
    kind: str
    amount: Decimal


RatePlace = tuple[str | None, ...]


def compute_variances(aggregates: Iterable[FactAggregate], by: Sequence[str] = ("job",)) -> tuple[VarianceBridge, ...]:
    """Return the bridge of each group and currency, groups in order, unknown first.

    Jobs are taken apart first, so that the bridges of any grouping add up to those of any coarser one exactly. With
    ``attempt`` among the words a plan's hours are used up by the attempts in the order in which they began; the last
    takes the rest. ValueError for a word that is none of :data:`router.showback.reconcile.variance.GROUPING_WORDS`.
    """
    unknown = sorted(set(by) - set(GROUPING_WORDS))
    if unknown:
        raise ValueError(f"a difference cannot be told by {', '.join(unknown)}; by {', '.join(GROUPING_WORDS)} it can")
    jobs: defaultdict[tuple[str | None, str | None], list[FactAggregate]] = defaultdict(list)
    for aggregate in aggregates:
        jobs[aggregate.team, aggregate.job].append(aggregate)
    sums: defaultdict[tuple[tuple[str | None, ...], str], _Sum] = defaultdict(_Sum)

    def sum_of(aggregate: FactAggregate, currency: str) -> _Sum:
        return sums[tuple(getattr(aggregate, word) for word in by), currency]

    for of_job in jobs.values():
        assigned = _assign_plan_to_attempts(of_job) if "attempt" in by else of_job
        for aggregate in assigned:
            sum_of(aggregate, aggregate.currency).add(aggregate)
        for part in _parts(assigned):
            sum_of(part.aggregate, part.currency).kinds[part.bucket, part.kind].append(part.amount)
    ordered = sorted(sums.items(), key=lambda item: ([(w is not None, w or "") for w in item[0][0]], item[0][1]))
    return tuple(each.variance(group, currency) for (group, currency), each in ordered)


class _Sum:
    def __init__(self) -> None:
        self.planned: list[Decimal] = []
        self.metered: list[Decimal] = []
        self.kinds: defaultdict[tuple[VarianceBucket, str], list[Decimal]] = defaultdict(list)
        self.unpriced = 0

    def add(self, aggregate: FactAggregate) -> None:
        if aggregate.money is None:
            self.unpriced += aggregate.rows if aggregate.side is not FactSide.METER else 0
        elif aggregate.side is FactSide.PLANNED:
            self.planned.append(aggregate.money)
        elif aggregate.side is FactSide.METER:
            self.metered.append(aggregate.money)

    def variance(self, group: tuple[str | None, ...], currency: str) -> VarianceBridge:
        kinds = {key: total for key in sorted(self.kinds) if (total := exact_sum(self.kinds[key]))}
        buckets = {
            bucket: exact_sum(amount for (of, _), amount in kinds.items() if of is bucket) for bucket in VarianceBucket
        }
        return VarianceBridge(
            group=group,
            currency=currency,
            planned=exact_sum(self.planned),
            metered=exact_sum(self.metered),
            buckets=buckets,
            kinds={key: amount for key, amount in kinds.items() if key[1]},
            unpriced=self.unpriced,
        )


def _parts(aggregates: Sequence[FactAggregate]) -> Iterator[_Part]:
    """Yield all amounts of a job's bridges; those of a currency add up to its invoiced money less its planned."""
    plans = {
        aggregate.currency
        for aggregate in aggregates
        if aggregate.side is FactSide.PLANNED and _is_machine_usage(aggregate)
    }
    rates = {currency: _Rates(aggregates, currency) for currency in sorted(plans)}
    for aggregate in aggregates:
        if aggregate.money is None or aggregate.side is FactSide.METER:
            continue
        negated = aggregate.money.copy_negate()
        if aggregate.side is FactSide.PLANNED:
            is_usage = _is_machine_usage(aggregate)
            why = (VarianceBucket.QUANTITY, "") if is_usage else (VarianceBucket.UNPLANNED, aggregate.what)
            yield _Part(aggregate, aggregate.currency, *why, negated)
            continue
        yield from _parts_of_actual(aggregate, aggregate.money, rates)
        if aggregate.side is not FactSide.BILLED:
            yield _Part(aggregate, aggregate.currency, VarianceBucket.TIMING, aggregate.side.value, negated)


def _parts_of_actual(aggregate: FactAggregate, money: Decimal, rates: Mapping[str, _Rates]) -> Iterator[_Part]:
    why = _planless_bucket(aggregate)
    if why is not None:
        yield _Part(aggregate, aggregate.currency, *why, money)
    elif aggregate.currency in rates:
        yield from rates[aggregate.currency].parts(aggregate, money)
    elif rates:
        yield _Part(aggregate, aggregate.currency, *OTHER_CURRENCY, money)
        currency, plan = next(iter(rates.items()))
        ran = plan.ran(aggregate)
        yield _Part(aggregate, currency, VarianceBucket.QUANTITY, "", ran)
        yield _Part(aggregate, currency, *OTHER_CURRENCY, ran.copy_negate())
    else:
        yield _Part(aggregate, aggregate.currency, VarianceBucket.UNPLANNED, aggregate.what, money)


def _planless_bucket(aggregate: FactAggregate) -> tuple[VarianceBucket, str] | None:
    """Return the bucket and kind of what needs no plan; None for a machine's hours that were of use."""
    if aggregate.category in _CREDITS:
        return VarianceBucket.CREDIT, _CREDITS[aggregate.category]
    if aggregate.corrected:
        return VarianceBucket.CREDIT, "correction"
    if aggregate.use not in (None, "work"):
        return VarianceBucket.WASTE, str(aggregate.use)
    return None if _is_machine_usage(aggregate) else (VarianceBucket.UNPLANNED, aggregate.what)


def _is_machine_usage(aggregate: FactAggregate) -> bool:
    return aggregate.what == "machine" and aggregate.category == "Usage"


class _Rates:
    """The plan's price of an hour for one job, at each place and on average."""

    def __init__(self, aggregates: Sequence[FactAggregate], currency: str) -> None:
        plan = [
            g
            for g in aggregates
            if g.side is FactSide.PLANNED and _is_machine_usage(g) and g.currency == currency and g.money is not None
        ]
        actual = [
            g
            for g in aggregates
            if g.side not in (FactSide.PLANNED, FactSide.METER) and _planless_bucket(g) is None and g.hours
        ]
        self._in_gpus = bool(plan) and all(g.gpu_hours for g in (*plan, *actual))
        money: defaultdict[RatePlace, Fraction] = defaultdict(Fraction)
        hours: defaultdict[RatePlace, Fraction] = defaultdict(Fraction)
        for aggregate in plan:
            money[_place(aggregate)] += Fraction(aggregate.money or 0)
            hours[_place(aggregate)] += self._hours(aggregate)
        whole = sum(hours.values())
        self._average = sum(money.values()) / whole if whole else Fraction(0)
        self._at = {place: money[place] / hours[place] for place in money if hours[place]}

    def parts(self, aggregate: FactAggregate, money: Decimal) -> Iterator[_Part]:
        """Yield price, quantity and mix; they add up to the money."""
        at, ran = self._at.get(_place(aggregate)), self.ran(aggregate)
        planned = money if at is None else round_fraction(self._hours(aggregate) * at, _PLACES)
        yield _Part(aggregate, aggregate.currency, VarianceBucket.PRICE, "", exact_difference(money, planned))
        yield _Part(aggregate, aggregate.currency, VarianceBucket.QUANTITY, "", ran)
        yield _Part(aggregate, aggregate.currency, VarianceBucket.MIX, "", exact_difference(planned, ran))

    def ran(self, aggregate: FactAggregate) -> Decimal:
        """Return its hours at the plan's average rate."""
        return round_fraction(self._hours(aggregate) * self._average, _PLACES)

    def _hours(self, aggregate: FactAggregate) -> Fraction:
        return Fraction((aggregate.gpu_hours if self._in_gpus else aggregate.hours) or 0)


def _place(aggregate: FactAggregate) -> RatePlace:
    return (aggregate.cloud, aggregate.region, aggregate.instance_type, aggregate.market)


def _assign_plan_to_attempts(aggregates: Sequence[FactAggregate]) -> list[FactAggregate]:
    """Return the aggregates, with the plan's handed to the attempts that used its hours up."""
    actual_hours: defaultdict[str | None, Fraction] = defaultdict(Fraction)
    for aggregate in sorted(aggregates, key=lambda aggregate: (aggregate.start, aggregate.attempt or "")):
        if (
            aggregate.side in (FactSide.METERED, FactSide.BILLED)
            and _planless_bucket(aggregate) is None
            and aggregate.attempt is not None
        ):
            actual_hours[aggregate.attempt] += Fraction(aggregate.hours or 0)
    plan = [aggregate for aggregate in aggregates if aggregate.side is FactSide.PLANNED and aggregate.attempt is None]
    if not actual_hours or not plan:
        return list(aggregates)
    unused_hours = sum((Fraction(aggregate.hours or 0) for aggregate in plan), Fraction(0))
    used_hours: list[Fraction] = []
    for hours in actual_hours.values():
        used_hours.append(min(hours, unused_hours))
        unused_hours -= used_hours[-1]
    used_hours[-1] += unused_hours
    return [
        *(aggregate for aggregate in aggregates if aggregate not in plan),
        *_split_plan(plan, list(actual_hours), used_hours),
    ]


def _split_plan(
    plan: Sequence[FactAggregate], attempts: Sequence[str | None], used_hours: Sequence[Fraction]
) -> Iterator[FactAggregate]:
    for aggregate in plan:
        money, hours, gpu_hours = (
            _split_or_none(each, used_hours) for each in (aggregate.money, aggregate.hours, aggregate.gpu_hours)
        )
        for at, attempt in enumerate(attempts):
            yield replace(aggregate, attempt=attempt, money=money[at], hours=hours[at], gpu_hours=gpu_hours[at])


def _split_or_none(whole: Decimal | None, weights: Sequence[Fraction]) -> Sequence[Decimal | None]:
    return [None] * len(weights) if whole is None else split_amount(whole, weights, _SHARED_PLACES)
