"""Two plans of one request, by the compact program and by columns, held against each other and the checker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from router.planning.document.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from tests.support.checker import check_plan
from tests.support.plan_view import View
from tests.support.precedence_rules import runs_now

SOLVER = 1e-6  # what a solver's own tolerances may do to a proven bound


@dataclass(frozen=True)
class Agreement:
    """Both plans of a request, and what contradicts in them; none where they agree."""

    compact: Plan
    columns: Plan
    wrong: tuple[str, ...]

    @property
    def same_left_out(self) -> bool:
        """Whether as many jobs of each priority are left out."""
        tiers = sorted({item.priority for plan in (self.compact, self.columns) for item in plan.unplaced})
        return left_out(self.compact, tiers) == left_out(self.columns, tiers)


def compare_planners(request: PlanRequest) -> Agreement:
    """Plan by the compact program and by columns, and judge both."""
    compact = make_plan(replace(request, compact_jobs=len(request.jobs), explained=False))
    columns = make_plan(replace(request, compact_jobs=0, explained=False))
    return Agreement(compact, columns, tuple(contradictions(request, compact, columns)))


def contradictions(request: PlanRequest, compact: Plan, columns: Plan) -> list[str]:
    """Describe all that is wrong with either plan, and where one disproves the other."""
    found = []
    for name, plan in (("compact", compact), ("columns", columns)):
        broken = check_plan(plan, request.jobs, request.book, request.limits, slot=request.slot)
        found += [f"{name}: {words}" for words in broken]
        if plan.bound_usd.dollars() > value_of(plan):
            found.append(f"{name}: bound {plan.bound_usd} above its own {value_of(plan)}")
    tiers = sorted({job.priority for job in request.jobs}, reverse=True)
    out = {name: left_out(plan, tiers) for name, plan in (("compact", compact), ("columns", columns))}
    # Running jobs left out come before others: where those that run differ, the numbers left out prove nothing.
    same_running = still_running(compact, request) == still_running(columns, request)
    for one, name, other in ((compact, "compact", "columns"), (columns, "columns", "compact")):
        if same_running and one.stage_one_proven and out[other] < out[name]:
            found.append(f"{name}: says that {out[name]} left out is proven, {other} leave out {out[other]}")
    if same_running and out["compact"] == out["columns"]:
        for one, name, another in ((compact, "compact", columns), (columns, "columns", compact)):
            value = value_of(another)
            if one.bound_usd.dollars() > value * (1 + SOLVER) + 1e-9:
                found.append(f"{name}: bound {one.bound_usd} above the other plan's {value}")
    return found


def still_running(plan: Plan, request: PlanRequest) -> frozenset[str]:
    """Running jobs that go on unbroken from now where they stand."""
    view = View(plan, request.jobs, request.book, request.limits, advisory=False, slot=request.slot)
    found = ((job, view.runs(job)) for job in request.jobs if runs_now(job))
    return frozenset(job.name for job, runs in found if len(runs) == 1 and view.stays(job, runs[0]))


def left_out(plan: Plan, tiers: list[int]) -> tuple[int, ...]:
    """Jobs left out by priority, in the order of ``tiers``."""
    count = Counter(item.priority for item in plan.unplaced)
    return tuple(count[tier] for tier in tiers)


def value_of(plan: Plan) -> float:
    """The objective in dollars: cost, thresholds, carbon where it is weighed."""
    return plan.objective_usd.dollars()
