"""Rebuild the request of a stored plan from its files, so that the plan can be made again under one change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pricing.problems import InvalidInputError, Problem
from router.app.plan import PlanOptions, plan_request
from router.planning.plan import Plan
from router.planning.planner import PlanRequest


@dataclass(frozen=True, slots=True)
class PlanFiles:
    """The files that a plan was made from, as named again on the command line."""

    jobs: tuple[str, ...]
    book: str
    limits: Path | None


def rebuild_request(plan: Plan, files: PlanFiles, slot: timedelta, time_limit: timedelta) -> tuple[PlanRequest, bool]:
    """Return the request of the plan, and whether its limits are those of the plan.

    Speeds and interruption rates are those that the plan learned. Limits differ where the plan was made with hard
    budgets, spending or shortages of the state. InvalidInputError where jobs or the price book are not those of the
    plan.
    """
    options = PlanOptions(
        horizon=plan.horizon_end - plan.horizon_start,
        slot=slot,
        gap=plan.gap_asked,
        time_limit=time_limit,
        advisory=any(not line.provisionable for line in plan.lines),
    )
    request = plan_request(files.jobs, files.book, files.limits, plan.as_of, options).request
    problems = [*_other_jobs(plan, request)]
    if request.book.digest != plan.book_digest:
        problems.append(
            Problem("", "--book", f"the price book {files.book} is not the one of the plan", "name that book")
        )
    if problems:
        raise InvalidInputError(problems)
    same = plan.inputs is None or plan.inputs.limits_digest == request.limits.digest
    return replace(request, resolve_limits=0, experience=plan.learned), same


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
