"""Build the bridge of a month from planned to invoiced, and its drivers: what differs most from plan, and why. Exact.

::

    planned + price + quantity + mix + waste + unplanned + credit + currency = metered    side "meter"
    metered + the same reasons                                              = spent      side "bill"
    spent   + timing                                                        = invoiced

The first line is the variance (:mod:`router.showback.reconcile.variance`) of what was metered against the plan. A
reason of the second line is its amount in the variance of what was spent, less its amount in the first. Where hours of
a job are billed in another currency than planned, its price, quantity, mix and waste on the second line are
``currency``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from router.ledger.entry import CostItem
from router.showback.apportion import exact_difference, exact_sum, subtract_known
from router.showback.facts import UNALLOCATED
from router.showback.reconcile.variance import (
    OTHER_CURRENCY,
    FactAggregate,
    FactSide,
    VarianceBridge,
    VarianceBucket,
    compute_variances,
)
from router.showback.report.query import ReportContext
from router.showback.report.values import CellValue, ReportSection

BRIDGE = ReportSection.define(
    "bridge",
    "From planned to invoiced",
    "currency:0 side step:0 amount:0 sum:0 why:4",
)
REASONS: Final = (*(bucket.value for bucket in VarianceBucket if bucket is not VarianceBucket.TIMING), "currency")
_MOVED: Final = ("price", "quantity", "mix", "waste")
_JobKey = tuple[tuple[str | None, ...], str]
_WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("meter", "planned"): "orders accepted for the month",
    ("meter", "price"): "other prices than planned",
    ("meter", "quantity"): "hours longer or shorter than planned, or none",
    ("meter", "mix"): "other places, machines, markets",
    ("meter", "waste"): "lost, idle, starting, late",
    ("meter", "unplanned"): "disks, copies, what no plan has",
    ("meter", "credit"): "corrections",
    ("meter", "currency"): "metered in another currency",
    ("meter", "metered"): "hours that machines existed",
    ("bill", "price"): "other prices on the bill",
    ("bill", "quantity"): "other hours on the bill",
    ("bill", "mix"): "other places or kinds on the bill",
    ("bill", "waste"): "paid and unused, as bills tell",
    ("bill", "unplanned"): "fees, storage, unmetered machines",
    ("bill", "credit"): "credits, taxes, corrections",
    ("bill", "currency"): "billed in another currency",
    ("bill", "spent"): "bills, and what is on none yet",
    ("bill", "timing"): "not on a bill yet",
    ("bill", "invoiced"): "on bills by now",
}


def month_aggregates(context: ReportContext) -> tuple[FactAggregate, ...]:
    """Return the month's facts for variances: those of the reconciliation, else the sums of the report."""
    if context.beside.aggregates is not None:
        return context.beside.aggregates
    words = "currency, category, what, use, team, job, cloud, region, instance_type, market"
    rows = context.sum_by(
        f"source, {words}, correction, {context.cost} IS NULL AS unknown",
        *("cost", "hours", "gpu_hours", "start", "facts"),
        where=f"month = '{context.month}'",
    )
    found = []
    for row in rows:
        del row["unknown"]
        side, corrected, money, rows_summed = (row.pop(name) for name in ("source", "correction", "cost", "facts"))
        aggregate = FactAggregate(side=FactSide(side), corrected=corrected, money=money, rows=rows_summed, **row)
        found.append(aggregate)
        if aggregate.side is FactSide.METERED:
            found.append(replace(aggregate, side=FactSide.METER))
    return tuple(found)


def build_bridge(context: ReportContext) -> ReportSection:
    """Return the steps of each currency in their order; ``sum`` is where the bridge stands after each."""
    aggregates = month_aggregates(context)
    if not any(each.side in (FactSide.PLANNED, FactSide.METER) for each in aggregates):
        note = "There is no bridge: nothing was planned or metered."
        return BRIDGE.fill((), note)
    invoiced = any(each.side is FactSide.BILLED for each in aggregates)
    actual, metered = _by_job(aggregates), _by_job(_as_metered(aggregates))
    table: list[dict[str, CellValue]] = []
    for currency in sorted({currency for _, currency in actual.keys() | metered.keys()}):
        by_meter: defaultdict[str, list[Decimal]] = defaultdict(list)
        by_bill: defaultdict[str, list[Decimal]] = defaultdict(list)
        for key in sorted(actual.keys() | metered.keys(), key=str):
            if key[1] == currency:
                first = split_currency(metered.get(key))
                for step, amount in first.items():
                    by_meter[step].append(amount)
                for step, amount in _bill_reasons(first, actual.get(key)):
                    by_bill[step].append(amount)
        planned = exact_sum(each.planned for (_, c), each in actual.items() if c == currency)
        timing = exact_sum(
            each.buckets.get(VarianceBucket.TIMING, Decimal(0)) for (_, c), each in actual.items() if c == currency
        )
        table += _rows(currency, planned, by_meter, by_bill, timing if invoiced else None)
    notes = ["Each step is exact; what is rounded is rounded by itself."]
    if not invoiced:
        notes.append("No bill has anything of the month yet.")
    return BRIDGE.fill(table, *notes)


def split_currency(bridge: VarianceBridge | None) -> dict[str, Decimal]:
    """Return the amount of each reason but timing; moves between currencies are one of their own."""
    if bridge is None:
        return dict.fromkeys(REASONS, Decimal(0))
    moved = bridge.kinds.get(OTHER_CURRENCY, Decimal(0))
    amounts = {b.value: bridge.buckets.get(b, Decimal(0)) for b in VarianceBucket if b is not VarianceBucket.TIMING}
    amounts["credit"] = exact_difference(amounts["credit"], moved)
    return {**amounts, "currency": moved}


def _by_job(aggregates: Iterable[FactAggregate]) -> dict[_JobKey, VarianceBridge]:
    return {(each.group, each.currency): each for each in compute_variances(aggregates, ("team", "job"))}


def _as_metered(aggregates: Iterable[FactAggregate]) -> list[FactAggregate]:
    """Return the planned aggregates, and the meter's as if they were all that was spent."""
    sides = {FactSide.PLANNED: FactSide.PLANNED, FactSide.METER: FactSide.METERED}
    return [replace(each, side=sides[each.side]) for each in aggregates if each.side in sides]


def _bill_reasons(first: Mapping[str, Decimal], actual: VarianceBridge | None) -> Iterator[tuple[str, Decimal]]:
    second = split_currency(actual)
    for step in REASONS:
        other = bool(second["currency"]) and step in _MOVED
        yield "currency" if other else step, exact_difference(second[step], first[step])


def _rows(
    currency: str,
    planned: Decimal,
    by_meter: Mapping[str, list[Decimal]],
    by_bill: Mapping[str, list[Decimal]],
    timing: Decimal | None,
) -> Iterator[dict[str, CellValue]]:
    at = planned

    def row(side: str, step: str, amount: Decimal) -> dict[str, CellValue]:
        words = _WORDS[side, step]
        return {"currency": currency, "side": side, "step": step, "amount": amount, "sum": at, "why": words}

    yield row("meter", "planned", planned)
    for side, reasons, station in (("meter", by_meter, "metered"), ("bill", by_bill, "spent")):
        for step in REASONS:
            amount = exact_sum(reasons.get(step, ()))
            at = exact_sum((at, amount))
            yield row(side, step, amount)
        yield row(side, station, at)
    if timing is not None:
        at = exact_sum((at, timing))
        yield row("bill", "timing", timing)
        yield row("bill", "invoiced", at)


DRIVERS = ReportSection.define(
    "drivers",
    "Largest differences from plan",
    "currency:0 number:3 team job:0 planned spent moved:4 difference:0 together:2 whole:2",
)
REASONS_OF_DRIVERS = ReportSection.define(
    "driver_reasons",
    "Why they differ",
    "currency:0 number:3 team job:0 bucket:0 kind:0 amount:0",
)
MOST_DRIVERS: Final = 5
NOT_RUN: Final = "not_run"
Reason = tuple[VarianceBucket, str | None, Decimal]


def build_drivers(context: ReportContext) -> tuple[ReportSection, ReportSection]:
    """Return the five largest differences from plan in each currency, and the reasons of each, which add up to it."""
    aggregates = month_aggregates(context)
    if not any(each.side is FactSide.PLANNED for each in aggregates):
        return DRIVERS.fill((), "There are no drivers: nothing was planned."), REASONS_OF_DRIVERS.fill(())
    bridges = compute_variances(aggregates, ("team", "job"))
    running = {job for job, due in context.beside.dues.items() if due.runs_now}
    ran = {(each.team, each.job) for each in aggregates if _is_run(each) or each.job in running}
    drivers: list[dict[str, CellValue]] = []
    reasons: list[dict[str, CellValue]] = []
    for currency in sorted({each.currency for each in bridges}):
        own = [each for each in bridges if each.currency == currency]
        whole = exact_sum(exact_difference(each.actual, each.planned) for each in own)
        together = Decimal(0)
        for number, (bridge, found, difference) in enumerate(_largest(own, ran), start=1):
            team, job = (UNALLOCATED if word is None else word for word in bridge.group)
            group: dict[str, CellValue] = {"currency": currency, "number": number, "team": team, "job": job}
            together = exact_sum((together, difference))
            amounts = {"planned": bridge.planned, "spent": bridge.actual, "difference": difference}
            moved = bridge.kinds.get(OTHER_CURRENCY, Decimal(0))
            drivers.append({**group, **amounts, "moved": moved, "together": together, "whole": whole})
            reasons += [{**group, "bucket": b.value, "kind": kind, "amount": amount} for b, kind, amount in found]
    note = (
        f"At most {MOST_DRIVERS} a currency: the difference of a job, or of what no job has, without hours that are "
        "billed in another currency than planned. Together: with those above it, of the whole difference."
    )
    return DRIVERS.fill(drivers, note), REASONS_OF_DRIVERS.fill(reasons)


def _is_run(aggregate: FactAggregate) -> bool:
    is_usage = aggregate.what == CostItem.MACHINE and aggregate.category == "Usage"
    return is_usage and aggregate.side is not FactSide.PLANNED


def _largest(
    bridges: Sequence[VarianceBridge], ran: Collection[tuple[str | None, ...]]
) -> list[tuple[VarianceBridge, list[Reason], Decimal]]:
    """Return the bridges with the largest differences, with reasons and difference."""
    found = []
    for bridge in bridges:
        reasons = list(_reasons(bridge, is_run=bridge.group in ran))
        difference = exact_sum(amount for *_, amount in reasons)
        if difference:
            found.append((bridge, reasons, difference))
    found.sort(key=lambda row: (-abs(row[2]), [word or "" for word in row[0].group]))
    return found[:MOST_DRIVERS]


def _reasons(bridge: VarianceBridge, *, is_run: bool) -> Iterator[Reason]:
    """Yield each reason but timing and moves between currencies, by kind where the bucket has kinds.

    The quantity of a job that no machine was there for is of the kind :data:`NOT_RUN`.
    """
    for bucket in VarianceBucket:
        if bucket is VarianceBucket.TIMING:
            continue
        kinds = [(kind, amount) for (of, kind), amount in bridge.kinds.items() if of is bucket]
        for kind, amount in sorted(kinds, key=lambda kind_and_amount: (-abs(kind_and_amount[1]), kind_and_amount[0])):
            if (bucket, kind) != OTHER_CURRENCY:
                yield bucket, kind, amount
        plain = subtract_known(bridge.buckets.get(bucket, Decimal(0)), exact_sum(amount for _, amount in kinds))
        if plain:
            yield bucket, NOT_RUN if bucket is VarianceBucket.QUANTITY and not is_run else None, plain
