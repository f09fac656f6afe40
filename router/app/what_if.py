"""Plan a request as it is and as it would be after changes, on several processes or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence

from router.app.parallel import Advance, Engine, run_tasks
from router.planning.document.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.what_if import Change, InterruptionChange, Variant, apply_changes
from router.planning.what_if.what_if_comparison import VariantResult, WhatIf, compare_variants


def _silent(_done: int, _total: int) -> None:
    return None


def run_what_if(
    request: PlanRequest,
    variants: Sequence[Variant],
    *,
    engine: Engine | None = None,
    advance: Advance = _silent,
) -> WhatIf:
    """Return the plan of the request and of each variant, compared; in the order of the variants.

    Without an engine everything runs in this process. ``advance`` is called with the number of plans that are done. The
    result does not depend on the engine. Each plan has the time limit of the request. InvalidInputError before any
    planning, with every name in the variants that the request does not know.
    """
    for variant in variants:
        apply_changes(request, variant.changes)
    tasks: list[tuple[Change, ...]] = [(), *(variant.changes for variant in variants)]
    base, *plans = run_tasks(_plan, request, tasks, engine or Engine(None, 1), advance)
    return compare_variants(base, list(zip(variants, plans, strict=True)))


def compare_lower_end(request: PlanRequest, plan: Plan) -> VariantResult:
    """Return the plan of the same request with every spot pool at the lower end of its interval, beside its plan."""
    change = InterruptionChange("low")
    variant = Variant(str(change), (change,))
    return compare_variants(plan, [(variant, _plan(request, variant.changes))]).variants[0]


def _plan(request: PlanRequest, changes: tuple[Change, ...]) -> Plan:
    return make_plan(apply_changes(request, changes))
