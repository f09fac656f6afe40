"""Find the drivers of a month: the jobs and unowned groups that differ most from what was planned, with reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Final

from router.ledger.entry import CostItem
from router.showback.apportion import exact_difference, exact_sum, subtract_known
from router.showback.facts import UNALLOCATED
from router.showback.reconcile.aggregates import FactAggregate, FactSide
from router.showback.reconcile.variance import OTHER_CURRENCY, VarianceBridge, VarianceBucket, compute_variances
from router.showback.report.bridge import month_aggregates
from router.showback.report.query import ReportContext
from router.showback.report.values import CURRENCY, CellKind, CellValue, ReportColumn, ReportSection, define_section

DRIVERS = define_section(
    "drivers",
    "Largest differences from plan",
    CURRENCY,
    ReportColumn("number", "No.", CellKind.COUNT, 3),
    ReportColumn("team", "Team", rank=1),
    ReportColumn("job", "Job", rank=0),
    ReportColumn("planned", "Planned", CellKind.MONEY, 1),
    ReportColumn("spent", "Spent", CellKind.MONEY, 1),
    ReportColumn("moved", "Other currency", CellKind.MONEY, 4),
    ReportColumn("difference", "Difference", CellKind.MONEY, 0),
    ReportColumn("together", "Together", CellKind.MONEY, 2),
    ReportColumn("whole", "Of all", CellKind.MONEY, 2),
)
REASONS_OF_DRIVERS = define_section(
    "driver_reasons",
    "Why they differ",
    CURRENCY,
    ReportColumn("number", "No.", CellKind.COUNT, 3),
    ReportColumn("team", "Team", rank=1),
    ReportColumn("job", "Job", rank=0),
    ReportColumn("bucket", "Because of", rank=0),
    ReportColumn("kind", "Kind", rank=0),
    ReportColumn("amount", "Amount", CellKind.MONEY, 0),
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
    """Return whether the aggregate is of machines that were there."""
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
