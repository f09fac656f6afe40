"""Rebuild the request of a stored plan, and plan a request again under changes, on several processes or a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pricing.book import PriceBook
from pricing.problems import InvalidInputError, Problem
from router.app.parallel import Advance, Engine, run_tasks
from router.app.plan import PlanOptions, plan_request
from router.controller.plans import as_planned, made_limits
from router.jobs.job_json import read_job
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.what_if import Change, InterruptionChange, Variant, apply_changes
from router.planning.what_if.what_if_comparison import VariantResult, WhatIf, compare_variants
from router.prices.books import load_book
from router.state.store import StateStore

_NOTHING: Mapping[str, Job] = {}


@dataclass(frozen=True, slots=True)
class PlanFiles:
    """The files that a plan was made from, as named again on the command line."""

    jobs: tuple[str, ...]
    book: str
    limits: Path | None


def rebuild_request(
    plan: Plan, files: PlanFiles, slot: timedelta, time_limit: timedelta, planned: Mapping[str, Job] = _NOTHING
) -> tuple[PlanRequest, bool]:
    """Return the request of the plan, and whether its limits are those of the plan.

    Speeds and interruption rates are those that the plan learned. Limits differ where the plan was made with hard
    budgets, spending or shortages of the state. ``planned`` are its jobs as the state has them, with the copies of data
    that it knew. InvalidInputError where jobs or the price book are not those of the
    plan.
    """
    options = PlanOptions(
        horizon=plan.horizon_end - plan.horizon_start,
        slot=slot,
        gap=plan.gap_asked,
        time_limit=time_limit,
        advisory=_orders_advisory(plan),
    )
    request = plan_request(files.jobs, files.book, files.limits, plan.as_of, options).request
    request = replace(request, jobs=tuple(as_planned(job, planned.get(job.name)) for job in request.jobs))
    problems = [*_other_jobs(plan, request)]
    if request.book.digest != plan.book_digest:
        problems.append(
            Problem("", "--book", f"the price book {files.book} is not the one of the plan", "name that book")
        )
    if problems:
        raise InvalidInputError(problems)
    same = plan.inputs.limits_digest == request.limits.digest
    return replace(request, resolve_limits=0, experience=plan.learned, explained=False), same


def planned_jobs(plan: Plan, store: StateStore) -> dict[str, Job]:
    """Return the jobs of the plan that the state has, by name."""
    stored = {job.job: read_job(store.plans.job(job.job_digest)) for job in plan.jobs}
    return {name: job for name, job in stored.items() if job is not None}


def stored_request(plan: Plan, job: str, book: str, store: StateStore) -> PlanRequest:
    """Return a request for one job of the plan, from the specification and the limits that the state has of it.

    The price book is the one called ``book`` or else the stored one of the plan. InvalidInputError where the plan, its
    jobs or its book are not known here.
    """
    summary = next(each for each in plan.jobs if each.job == job)
    digest = plan_content(plan)["digest"]
    specified = read_job(store.plans.job(summary.job_digest))
    if specified is None or store.made_plans.text(digest) is None:
        raise InvalidInputError.single("the state does not know this plan and its jobs")
    return PlanRequest(
        jobs=(specified,),
        book=_book_of(plan, book),
        limits=made_limits(store, digest),
        now=plan.as_of,
        advisory=_orders_advisory(plan),
        experience=plan.learned,
    )


def _book_of(plan: Plan, name: str) -> PriceBook:
    book = load_book(name)
    if book.digest == plan.book_digest:
        return book
    try:
        return load_book(plan.book_digest)
    except InvalidInputError:
        what = f"the price book {plan.book_digest[:12]} of the plan is not stored here"
        raise InvalidInputError.single(what, field="--book", remedy="name it") from None


def _orders_advisory(plan: Plan) -> bool:
    return any(not line.provisionable for line in plan.lines)


def _other_jobs(plan: Plan, request: PlanRequest) -> Sequence[Problem]:
    planned = {job.job: job.job_digest for job in plan.jobs}
    given = {job.name: job.digest for job in request.jobs}
    problems = []
    for name in sorted(planned.keys() | given.keys()):
        if name not in given:
            what, remedy = f"the plan has job {name!r}, and these files do not", "name all job files of the plan"
        elif name not in planned:
            what, remedy = f"job {name!r} is not in the plan", "name only job files of the plan"
        elif planned[name] != given[name]:
            what, remedy = f"job {name!r} was changed after the plan was made", "plan again: stepfare plan"
        else:
            continue
        problems.append(Problem("", "--jobs", what, remedy))
    return problems


def run_what_if(
    request: PlanRequest,
    variants: Sequence[Variant],
    *,
    engine: Engine | None = None,
    advance: Advance = lambda _done, _total: None,
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
    return make_plan(replace(apply_changes(request, changes), explained=False))
