"""Price each constraint of one job over the whole night: plan again without it, while all else stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pricing.money import ZERO, Usd
from router.jobs.spec import Job, MarketRule
from router.planning.document.plan import Plan
from router.planning.document.plan_facts import main_placement
from router.planning.explain.relaxations import (
    with_any_machines,
    without_deadline,
    without_egress_cap,
    without_max_moves,
    without_placement,
    without_residency,
)
from router.planning.find.affinity import affinity_of, without_affinity
from router.planning.find.allowances import own_allowance, with_allowance
from router.planning.find.derived_placement import find_for_plan, rules_by_placement
from router.planning.planner import PlanRequest, make_plan

PriceBasis = Literal["resolved", "at least"]
_TIGHT = 1e-6  # gap of both plans, where one program places all jobs
_SMALL = 0.1  # share of the figure within which both plans must be proven optimal
_CENT = 0.01


@dataclass(frozen=True, slots=True)
class ConstraintPrice:
    """The gain of the whole plan if one rule of one job were dropped; other jobs may move.

    Without the rule ``places`` more jobs of the highest priority that differs are placed, and the bill is ``saves_usd``
    lower (below zero where more jobs cost more). ``gap_usd`` is the sum of both plans' distances to their bounds. The
    figure is ``resolved`` where both plans are proven to a tenth of it or a cent; otherwise the rule costs ``at least``
    this much, with thresholds and carbon counted, as far as the searches prove. ``instead`` is the job's place without
    the rule.
    """

    rule: str
    basis: PriceBasis
    saves_usd: Usd
    gap_usd: Usd
    places: int
    instead: str


def constraint_prices(
    request: PlanRequest, name: str, plan: Callable[[PlanRequest], Plan] = make_plan
) -> tuple[ConstraintPrice, ...]:
    """Return the price of each rule that the job has, in a fixed order.

    The night is planned once as it is and once without each rule, each time within the counts of the request, so that
    equal requests give equal prices. Shadow prices and an earlier plan play no part.
    """
    job = next(job for job in request.jobs if job.name == name)
    changes = list(_without_each_rule(job, request))
    if not changes:
        return ()
    # A night by columns seldom closes a tighter gap than the one asked for, and would search to the end of its counts.
    gap = min(request.gap, _TIGHT) if len(request.jobs) <= request.compact_jobs else request.gap
    request = replace(request, gap=gap, resolve_limits=0, previous=None, explained=False)
    before = plan(request)
    prices = []
    for rule, changed in changes:
        jobs = tuple(changed if other.name == name else other for other in request.jobs)
        prices.append(_price(rule, name, before, plan(replace(request, jobs=jobs))))
    return tuple(prices)


def _without_each_rule(job: Job, request: PlanRequest) -> Iterator[tuple[str, Job]]:
    """Yield each rule of the job with the job that lacks it; nothing that was allowed is forbidden then."""
    if job.residency.allow or job.residency.deny:
        yield "residency", without_residency(job)
    if rules_by_placement(job, find_for_plan(request.finder(), job)[1]):
        yield "placement", without_placement(job)
    if job.data is not None and job.data.egress_cap is not None:
        yield "egress cap", without_egress_cap(job)
    if job.deadline is not None:
        yield "deadline", without_deadline(job, request.now)
    if own_allowance(job) is not None:
        yield "budget", with_allowance(job, None)
    any_fabric = job.gang.model_copy(update={"rdma": "optional"})
    for rule, is_stated, change in (
        ("market", job.market.spot != "allowed", {"market": MarketRule()}),
        ("max_price", job.max_price is not None, {"max_price": None}),
        ("RDMA fabric", job.gang.rdma == "required", {"gang": any_fabric}),
    ):
        if is_stated:
            yield rule, job.model_copy(update=change)
    if job.gang.machines is not None:
        yield "machines", with_any_machines(job)
    if job.gang.max_moves is not None:
        yield "max_moves", without_max_moves(job)
    if affinity_of(job) is not None:
        yield "group", without_affinity(job)
    if job.earliest_start is not None and job.earliest_start.at(request.now) > request.now:
        yield "earliest start", job.model_copy(update={"earliest_start": None})


def _price(rule: str, name: str, before: Plan, after: Plan) -> ConstraintPrice:
    """Return the difference of two plans, of which the second has all choices of the first and more."""
    places = _more_placed(before, after)
    saves = before.cost_usd - after.cost_usd
    doubt = _gap(before) + _gap(after)
    proven = before.stage_one_proven and after.stage_one_proven
    placement = main_placement(after.lines, name)
    instead = "left out" if placement is None else str(placement)
    if proven and places >= 0 and doubt.dollars() <= max(_CENT, _SMALL * abs(saves.dollars())):
        if places == 0 and saves.dollars() < _CENT:
            saves, instead = ZERO, ""
        return ConstraintPrice(rule, "resolved", saves, doubt, places, instead)
    if places > 0 and before.stage_one_proven:
        return ConstraintPrice(rule, "at least", saves, doubt, places, instead)
    # With as many jobs placed, the plan as it is costs no less than its bound.
    least = before.bound_usd - after.objective_usd
    if places == 0 and proven and least.nanos > 0:
        return ConstraintPrice(rule, "at least", least, doubt, 0, instead)
    return ConstraintPrice(rule, "at least", ZERO, doubt, 0, "")


def _gap(plan: Plan) -> Usd:
    return plan.objective_usd - plan.bound_usd


def _more_placed(before: Plan, after: Plan) -> int:
    """Return how many more jobs the second plan places, of the highest priority in which the two differ."""
    out = [Counter(job.priority for job in plan.unplaced) for plan in (before, after)]
    tiers = sorted(out[0].keys() | out[1].keys(), reverse=True)
    return next((out[0][tier] - out[1][tier] for tier in tiers if out[0][tier] != out[1][tier]), 0)
