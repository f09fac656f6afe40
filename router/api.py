"""Plan, quote and report from Python: what the commands do, as values, and nothing printed.

Names in ``__all__`` stay as docs/compatibility.md says; other modules are no interface. Every function raises
:class:`InvalidInputError` for what a file, a name or an option gets wrong, with all problems at once; a time
needs its zone. Files, stored price books and the price history are read, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pricing.money import Usd
from pricing.places import Market
from pricing.problems import InvalidInputError
from router.app.estimate import parse_gangs
from router.app.plan import PlanOptions, plan_request
from router.app.plan_rerun import run_what_if
from router.app.quotes import QuoteOptions, make_quotes, prepare_quotes
from router.app.showback import report_of_files
from router.config.job_files import load_jobs as read_job_files
from router.config.job_files import load_limits as read_limits_file
from router.jobs.limits import Limits
from router.jobs.quantities import Moment
from router.jobs.spec import Job
from router.ledger.month import Month
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.estimate.gang_estimates import EstimateInputs, JobEstimate, estimate_gangs
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.constraint_prices import ConstraintPrice, constraint_prices
from router.planning.what_if.what_if import Variant
from router.planning.what_if.what_if_comparison import WhatIf
from router.planning.what_if.what_if_syntax import parse_change
from router.prices.books import load_book
from router.quotes.quote import BudgetQuote, Quote, Refused
from router.showback.report.query import ReportQuery
from router.showback.report.values import ShowbackReport

__all__ = [
    "InvalidInputError",
    "PlanRequest",
    "compare_changes",
    "estimate_job",
    "load_book",
    "load_jobs",
    "load_limits",
    "load_night",
    "make_plan",
    "plan_from_json",
    "plan_to_json",
    "price_rules",
    "quote_jobs",
    "report_month",
]


def load_jobs(*paths: str | Path, now: datetime) -> tuple[Job, ...]:
    """Return the jobs of files, folders and globs; ``now`` (aware) is the moment from which relative times count."""
    return read_job_files([str(path) for path in paths], _aware("now", now)).jobs


def load_limits(path: str | Path) -> Limits:
    """Return the limits of a file; ``Limits.none()`` are none."""
    return read_limits_file(Path(path)).limits


def load_night(
    *paths: str | Path, now: datetime, book: str = "latest", limits: str | Path | None = None, **terms: Any
) -> PlanRequest:
    """Return the request of a plan: the jobs of the paths, checked against that price book and the limits file.

    ``book``: a name (``latest``, ``embedded``) or a file. ``terms`` are fields of a request: ``horizon``, ``slot`` and
    ``time_limit`` (timedelta), ``gap`` (relative), ``advisory``. To change more, ``dataclasses.replace`` it. The state
    counts for nothing: no earlier runs, budgets or shortages.
    """
    file = None if limits is None else Path(limits)
    if not 0 <= terms.get("gap", 0.0) < 1:
        raise InvalidInputError.single(f"{terms['gap']} is no share", field="gap", remedy="write e.g. 0.005")
    options = PlanOptions(**terms)
    return plan_request([str(path) for path in paths], book, file, _aware("now", now), options).request


def price_rules(request: PlanRequest, job: str) -> tuple[ConstraintPrice, ...]:
    """Return what each rule of a job costs the night: it is planned again without each, which takes a plan each."""
    _find_job(request, job)
    return constraint_prices(request, job)


def compare_changes(request: PlanRequest, variants: Mapping[str, Sequence[tuple[str, str]]]) -> WhatIf:
    """Return the plan of the request and of each variant, compared.

    A variant is a name with its changes, each an option of ``stepfare what-if`` and its value:
    ``{"east is gone": [("--drop-region", "aws/us-east-1")]}``.
    """
    made = [
        Variant(name, tuple(parse_change(option, value) for option, value in changes))
        for name, changes in variants.items()
    ]
    return run_what_if(request, made)


def estimate_job(request: PlanRequest, job: str, *gangs: str, markets: Sequence[Market] = tuple(Market)) -> JobEstimate:
    """Return what a step of a job costs on each gang (``"H100:8"``; by default its own) in each market, unplanned."""
    asked = _find_job(request, job)
    inputs = EstimateInputs(request.book, request.now, request.advisory, limits=request.limits)
    return estimate_gangs(asked, parse_gangs(gangs) or asked.gang.options, markets, inputs)


def quote_jobs(
    *paths: str | Path,
    now: datetime,
    by: datetime | timedelta | None = None,
    budget: Usd | None = None,
    book: str = "latest",
    limits: str | Path | None = None,
) -> tuple[Quote | BudgetQuote | Refused, ...]:
    """Return an answer for each job: its cost by a moment (by default its own deadline), or how far a budget goes."""
    moment = Moment(relative=by) if isinstance(by, timedelta) else None
    if isinstance(by, datetime):
        moment = Moment(absolute=_aware("by", by))
    file = None if limits is None else Path(limits)
    options = QuoteOptions(by=moment, budget=budget, processes=1)
    sources = [str(path) for path in paths]
    return tuple(make_quotes(prepare_quotes(sources, book, file, _aware("now", now), options, load_book)))


def report_month(month: str, *files: str | Path, now: datetime, by: Sequence[str] = ("team",)) -> ShowbackReport:
    """Return the showback report of a month (``2026-11``) from FOCUS files, grouped as ``stepfare showback`` does."""
    try:
        query = ReportQuery(month=Month.parse(month), now=_aware("now", now), as_of=now, by=tuple(by))
    except ValueError as error:
        raise InvalidInputError.single(str(error), field="month, by") from None
    return report_of_files([Path(file) for file in files], query)


def _aware(field: str, moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise InvalidInputError.single(f"{moment} has no time zone", field=field, remedy="write tzinfo=UTC")
    return moment


def _find_job(request: PlanRequest, name: str) -> Job:
    for job in request.jobs:
        if job.name == name:
            return job
    raise InvalidInputError.single(f"the request has no job {name!r}", field="job")
