"""Draw pages and data of jobs in a child process, which converts only the rows that changed since it last read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pricing.problems import InvalidInputError
from router.app.queries.context import QueryContext
from router.app.queries.jobs import find_attempt, find_job, report_jobs
from router.app.queries.plans import find_night_of
from router.app.queries.quotes import list_job_quotes
from router.console.site import ConsoleSite
from router.render import jobs_data
from router.render.jobs_page import JobsView, attempt_page, job_page, jobs_fragment, jobs_page
from router.render.pages import PageFrame
from router.render.planned_job_page import planned_job_url
from router.render.quote_list_page import QuoteListView, job_quotes_view


@contextmanager
def draw_jobs_in_child(site: ConsoleSite) -> Iterator[None]:
    """Draw in a child process while the block runs."""
    site.job_work.start()
    try:
        yield
    finally:
        site.job_work.close()


def draw_jobs(context: QueryContext, frame: PageFrame | None, refreshing: bool, view: JobsView) -> str:
    """Return the page of the gangs that somebody looks at; without a frame the part of it that changes."""
    report = report_jobs(context)
    if frame is None:
        return jobs_fragment(report, refreshing=refreshing, view=view)
    return jobs_page(report, frame, refreshing=refreshing, view=view)


def draw_job(context: QueryContext, name: str, frame: PageFrame) -> str | None:
    """Return the page of a job; None where there is none that may be seen."""
    report = find_job(context, name)
    if report is None:
        return None
    tonight = find_night_of(context, name)
    is_new = tonight is not None and tonight != report.last.outlook.gang.attempt.plan
    quotes = view_job_quotes(context, name, report.last.outlook.gang.attempt.team)
    return job_page(report, frame, planned_job_url("latest", name) if is_new else "", quotes)


def view_job_quotes(context: QueryContext, job: str, team: str) -> QuoteListView | None:
    """Return what the page of a team's job shows of its quotes; None if there are none that the reader may see."""
    try:
        quotes = list_job_quotes(context, job, team)
    except InvalidInputError:
        # The message may name a quote of another team, and a job can be looked at without its quotes.
        return job_quotes_view(None, context.clock(), job)
    return job_quotes_view(quotes, context.clock(), job)


def draw_attempt(context: QueryContext, name: str, frame: PageFrame) -> str | None:
    """Return the page of an attempt; None where there is none that may be seen."""
    report = find_attempt(context, name)
    return None if report is None else attempt_page(report, context.clock(), frame)


def list_gangs(context: QueryContext, limit: int, before: str | None) -> dict[str, object] | None:
    """Return the document of ``limit`` gangs; None where there is no such attempt ``before``."""
    return jobs_data.jobs_document(report_jobs(context), limit, before)


def list_gangs_as_csv(context: QueryContext) -> str:
    """Return all gangs as CSV."""
    return jobs_data.gangs_as_csv(report_jobs(context))
