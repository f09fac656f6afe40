"""Build a plan request from a stored quote: the job with the quote's deadline and a ceiling as its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.app.inputs import load_inputs
from router.jobs.limits import Limits
from router.jobs.quantities import Moment
from router.jobs.run_policy import RunPolicy
from router.jobs.spec import Job
from router.planning.plan import Plan
from router.planning.planner import PlanRequest
from router.prices.books import load_book
from router.quotes.quote import Quote


def plan_request_of(
    quote: Quote,
    ceiling: Usd,
    book_name: str,
    limits_file: Path | None,
    now: datetime,
    held: Callable[[Limits], Limits] = lambda limits: limits,
) -> PlanRequest:
    """Return a plan request for the quoted job, on today's prices.

    The ceiling lowers the job's own budget, never raises it; ``held`` adds the budgets that the state knows.
    InvalidInputError where the job's file is gone, or the job is not the one that was quoted.
    """
    book = load_book(book_name)
    loaded, limits = load_inputs(quote.files, limits_file, now, book, own_deadlines=False)
    job = next((j for j in loaded.jobs if j.name == quote.job), None)
    where = ", ".join(quote.files)
    if job is None:
        raise InvalidInputError.single(f"holds no job {quote.job} any more", where=where, remedy="quote again")
    if job.digest != quote.job_digest:
        raise InvalidInputError.single(
            f"job {quote.job} was changed since it was quoted", where=where, remedy="quote again"
        )
    return PlanRequest(jobs=(cap_job(job, quote.deadline, ceiling),), book=book, limits=held(limits), now=now)


def cap_job(job: Job, deadline: datetime, ceiling: Usd) -> Job:
    """Return the job with this deadline, and with no larger budget than the ceiling."""
    budget = ceiling if job.budget is None else min(ceiling, job.budget)
    return job.model_copy(update={"deadline": Moment(absolute=deadline), "budget": budget})


def with_quoted_policy(plan: Plan, policy: RunPolicy | None) -> Plan:
    """Return the plan with the quote's policy on its lines."""
    return replace(plan, lines=tuple(replace(line, policy=policy) for line in plan.lines))
