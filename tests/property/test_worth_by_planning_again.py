"""Figures of a plan are promises: with the input changed as they say, planning again brings what they said.

Nights are those of the benches. Each figure is held against plans whose input was changed: the limit's amount, the
job's field, the rule. Costs agree to the cent where all are proven optimal, otherwise within their gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pricing.money import Usd
from router.jobs.residency import Residency
from router.jobs.spec import Job, MarketRule
from router.planning.document.plan import Plan, Relaxation, ShadowPrice
from router.planning.planner import PlanRequest, make_plan
from router.planning.problem.problem import window
from router.planning.what_if.constraint_prices import ConstraintPrice, constraint_prices
from tests.bench.hundred_jobs import crowded_request
from tests.bench.nights import mid_size_request
from tests.support.changed_requests import raised, relaxed, with_job

CENT = 0.01
TIGHT = 1e-6
TEN = 10
# Seed, kinds and copies of crowded nights that have a limit of which more is worth something.
CROWDED = (
    *((1, 3, 7), (2, 3, 7), (1, 5, 10), (3, 3, 7), (3, 5, 10)),
    *((5, 5, 10), (6, 5, 10), (7, 5, 10), (8, 3, 7), (12, 3, 7)),
)
LEAVING_OUT = (3, 8, 14, 4, 2, 5, 13)
RULED = (3, 4, 8, 34)


def exact(request: PlanRequest) -> Plan:
    """The plan without a gap to speak of."""
    return make_plan(replace(request, gap=TIGHT, resolve_limits=0, explained=False))


def left_out(plan: Plan, request: PlanRequest) -> tuple[int, ...]:
    """Jobs left out by priority, highest first."""
    count = Counter(job.priority for job in plan.unplaced)
    return tuple(count[tier] for tier in sorted({job.priority for job in request.jobs}, reverse=True))


def more_placed(before: Plan, after: Plan, request: PlanRequest) -> int:
    pairs = zip(left_out(before, request), left_out(after, request), strict=True)
    return next((a - b for a, b in pairs if a != b), 0)


def gap_of(*plans: Plan) -> float:
    """Dollars that the searches left open; of thresholds, which no bill has, all."""
    return sum((p.cost_usd + p.threshold_usd - p.bound_usd + p.threshold_usd).dollars() for p in plans)


def resolved_prices(nights: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[PlanRequest, ShadowPrice]]:
    for seed, kinds, count in nights:
        request = crowded_request(seed, kinds, count, resolve_limits=5)
        yield from (
            (request, p) for p in make_plan(replace(request, explained=False)).shadow_prices if p.basis == "resolved"
        )


def confirm_price(request: PlanRequest, price: ShadowPrice) -> None:
    before, after = exact(request), exact(raised(request, price))
    assert before.stage_one_proven
    assert after.stage_one_proven
    assert more_placed(before, after, request) == price.places, price
    saved = (before.cost_usd - after.cost_usd).dollars()
    assert price.saves_usd is not None
    assert saved == pytest.approx(price.saves_usd.dollars(), abs=CENT + gap_of(before, after)), price


def relaxations(seeds: tuple[int, ...]) -> Iterator[tuple[PlanRequest, Plan, str, Relaxation]]:
    for seed in seeds:
        request = mid_size_request(seed)
        plan = make_plan(request)
        yield from ((request, plan, u.job, r) for u in plan.unplaced for r in u.relaxations)


def confirm_relaxation(request: PlanRequest, plan: Plan, name: str, found: Relaxation) -> None:
    """The job has a place beside all that were placed, at the cost named or less."""
    after = exact(relaxed(request, name, found))
    assert after.stage_one_proven
    tiers = sorted({job.priority for job in request.jobs}, reverse=True)
    own = next(u.priority for u in plan.unplaced if u.job == name)
    promised = tuple(n - (tier == own) for tier, n in zip(tiers, left_out(plan, request), strict=True))
    assert left_out(after, request) <= promised, (name, found)
    assert found.cost_usd is not None
    if left_out(after, request) == promised:
        most = (plan.cost_usd + found.cost_usd).dollars()
        assert after.cost_usd.dollars() <= most + CENT + gap_of(after) + plan.threshold_usd.dollars(), (name, found)


def prices_of_rules(seeds: tuple[int, ...]) -> Iterator[tuple[PlanRequest, str, ConstraintPrice]]:
    """Yield the dearest rules of each night first: a rule that costs nothing is quickly confirmed."""
    for seed in seeds:
        request = mid_size_request(seed)
        costly = sorted(
            (-cost.saving_usd.nanos, job.job) for job in make_plan(request).jobs for cost in job.constraint_costs
        )
        for name in dict.fromkeys([name for _, name in costly][:3]):
            yield from ((request, name, price) for price in constraint_prices(request, name))


def without(rule: str, job: Job, request: PlanRequest) -> Job:
    match rule:
        case "residency":
            return job.model_copy(update={"residency": Residency()})
        case "deadline":
            first, last = window(job, request.now)
            assert last is not None
            return job.model_copy(update={"deadline": None, "max_wait": max(job.max_wait, last - first)})
        case "market":
            return job.model_copy(update={"market": MarketRule()})
        case "RDMA fabric":
            return job.model_copy(update={"gang": job.gang.model_copy(update={"rdma": "optional"})})
        case "machines":
            return job.model_copy(update={"gang": job.gang.model_copy(update={"machines": None})})
    raise AssertionError(rule)


def confirm_rule(request: PlanRequest, name: str, price: ConstraintPrice) -> None:
    """Planned by columns, which share no program with the figure, each plan holds within the gaps of all."""
    job = next(j for j in request.jobs if j.name == name)
    changed = with_job(request, without(price.rule, job, request))
    assert price.basis == "resolved"
    before, after = exact(request), exact(changed)
    saved = (before.cost_usd - after.cost_usd).dollars()
    assert more_placed(before, after, request) == price.places
    assert saved == pytest.approx(price.saves_usd.dollars(), abs=CENT + gap_of(before, after)), (name, price)
    by_columns = make_plan(replace(changed, compact_jobs=0, explained=False))
    if left_out(by_columns, request) == left_out(after, request):
        claimed = (before.cost_usd + before.threshold_usd - price.saves_usd).dollars()
        assert by_columns.bound_usd.dollars() <= claimed + CENT + gap_of(before, after), (name, price)


@pytest.mark.slow
def test_one_of_each_is_confirmed() -> None:
    confirm_price(*next(resolved_prices(CROWDED[1:2])))
    confirm_relaxation(*next(relaxations((8,))))
    confirm_rule(*next(prices_of_rules((34,))))


@pytest.mark.slow
def test_ten_shadow_prices_are_confirmed() -> None:
    found = list(resolved_prices(CROWDED))
    assert len(found) >= TEN
    for request, price in found[:TEN]:
        confirm_price(request, price)


@pytest.mark.slow
def test_ten_relaxations_are_confirmed() -> None:
    found = list(relaxations(LEAVING_OUT))
    assert len(found) >= TEN
    for each in found:
        confirm_relaxation(*each)


@pytest.mark.slow
def test_ten_prices_of_rules_are_confirmed() -> None:
    found = list(prices_of_rules(RULED))
    assert len(found) >= TEN
    for each in found:
        confirm_rule(*each)
    assert sum(price.saves_usd > Usd(0) for _, _, price in found) >= TEN // 2
