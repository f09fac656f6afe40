"""Checks of what a plan says of committed spend (design note rules-of-the-plan)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from router.jobs.limits import Commitment
from router.planning.document.plan import Line
from tests.support.commitment_oracle import bought, matches
from tests.support.plan_view import View, exact_hours
from tests.support.schedules import dates_of, slot_edges


def check_commitments(view: View) -> Iterator[str]:
    """Every commitment is there once; its dollars and its jobs' parts are those of its slots."""
    uses = {use.commitment: use for use in view.plan.commitments}
    if list(uses) != [item.name for item in view.limits.commitments] or len(uses) != len(view.plan.commitments):
        yield f"commitments {list(uses)}, the limits file has {[item.name for item in view.limits.commitments]}"
        return
    for item in view.limits.commitments:
        use = uses[item.name]
        if use.used_usd + use.unused_usd != use.committed_usd or use.unused_usd.nanos < 0:
            yield f"{item.name}: {use.used_usd} used and {use.unused_usd} unused of {use.committed_usd}"
        if abs(use.used_usd.nanos - use.covered_usd.nanos * (1 - Fraction(str(item.discount)))) > 1:
            yield f"{item.name}: {use.used_usd} used for {use.covered_usd} at a discount of {item.discount}"
        begin, end = (
            max(view.now, item.start or view.now),
            min(view.plan.horizon_end, item.until or view.plan.horizon_end),
        )
        hours = exact_hours(max(end - begin, timedelta(0)))
        if abs(use.committed_usd.nanos - item.usd_per_hour.nanos * hours) > 1:
            yield f"{item.name}: {use.committed_usd} committed in {float(hours)} h"
        if sum(part.covered_usd.nanos for part in use.jobs) != use.covered_usd.nanos:
            yield f"{item.name}: parts of jobs do not add up to {use.covered_usd}"
        costs = {job.job: job.cost_usd for job in view.plan.jobs}
        for part in use.jobs:
            if not 0 < part.covered_usd.nanos <= costs[part.job].nanos:
                yield f"{item.name}: covers {part.covered_usd} of {part.job}, which costs {costs[part.job]}"
        if view.slot is not None:
            yield from _cover_of_slots(view, item)


def _cover_of_slots(view: View, item: Commitment) -> Iterator[str]:
    dates = dates_of(*view.limits.reservations, *view.limits.maintenance, *view.limits.commitments)
    edges = slot_edges(view.now, view.plan.horizon_end, view.slot or timedelta(hours=1), dates)
    total, by_job = Fraction(0), dict[str, Fraction]()
    for begin, end in pairwise(edges):
        used = {line: _used(view, item, line) * _within(line, begin, end) for line in view.plan.lines}
        whole = sum(used.values(), Fraction(0))
        share = min(Fraction(1), bought(item, begin, end) / whole) if whole else Fraction(0)
        total += whole * share
        for line, nanos in used.items():
            by_job[line.job] = by_job.get(line.job, Fraction(0)) + nanos * share
    use = next(found for found in view.plan.commitments if found.commitment == item.name)
    rounding = 2 * len(view.plan.lines) * (len(edges) + 50) + 2  # times are rounded to the microsecond
    if abs(total - use.covered_usd.nanos) > rounding:
        yield f"{item.name}: covers {use.covered_usd}, its slots make {float(total) / 1e9}"
    parts = {part.job: part.covered_usd.nanos for part in use.jobs}
    for job, nanos in by_job.items():
        if abs(nanos - parts.get(job, 0)) > rounding:
            yield f"{item.name}: covers {parts.get(job, 0)} nano-dollars of {job}, its slots make {float(nanos)}"


def _used(view: View, item: Commitment, line: Line) -> Fraction:
    """Nano-dollars an hour of the line that use the commitment."""
    machine = view.book.machine(line.cloud, line.instance_type)
    if line.kind != "order" or machine is None or not matches(item, line, machine):
        return Fraction(0)
    billed = line.billed_share * line.on_time_steps_per_hour / line.steps_per_hour
    return line.usd_per_hour.nanos * Fraction(billed)


def _within(line: Line, begin: datetime, end: datetime) -> Fraction:
    return exact_hours(max(min(line.end, end) - max(line.start, begin), timedelta(0)))
