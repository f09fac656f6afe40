"""The API of jobs: gangs as ``stepfare status -o json`` tells them, one job, one attempt with its exact costs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from router.access.identity import Permission
from router.app.queries.jobs import LONGEST_NAME, find_attempt, find_job
from router.console.answers import CSV, CachedAnswer
from router.console.api.description import JSON_OR_CSV, Form
from router.console.error_answers import answer_error
from router.console.query_work import list_gangs, list_gangs_as_csv
from router.console.site import ConsoleSite
from router.render import jobs_data

MOST_ROWS = 1000


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes below ``/api/v1`` about jobs and attempts."""
    router = APIRouter(prefix="/api/v1", tags=["jobs"])

    @router.get(
        "/jobs", summary="List gangs that run, and the last one of each job that is over", responses=JSON_OR_CSV
    )
    async def list_jobs(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Gangs, the newest ones.")] = 200,
        before: Annotated[
            str | None, Query(max_length=LONGEST_NAME, description="Only gangs before this attempt, for the next part.")
        ] = None,
        format: Form = "json",  # noqa: A002  the name of the parameter in the URL
    ) -> Response:
        context = site.asked_by(request)
        seen = context.identity.require(Permission.READ_JOBS)

        def make() -> CachedAnswer | None:
            if format == "csv":
                return CachedAnswer.of(site.job_work.ask_for(context, list_gangs_as_csv), CSV)
            document = site.job_work.ask_for(context, list_gangs, limit, before)
            return None if document is None else CachedAnswer.of_json(document)

        answer = await site.recent.get(("jobs by API", seen, limit, before, format), make)
        if answer is None:
            return answer_error(request, 404, "there is no such attempt to list gangs before", "leave `before` out")
        return answer.response(request)

    @router.get(
        "/jobs/{name:path}", summary="Return a job with all its attempts and what each cost", responses=JSON_OR_CSV
    )
    def get_job(request: Request, name: str, format: Form = "json") -> Response:  # noqa: A002
        report = find_job(site.asked_by(request), name)
        if report is None:
            return answer_error(request, 404, "there is no such job", "GET /api/v1/jobs lists them")
        if format == "csv":
            return Response(jobs_data.attempts_as_csv(report), media_type=CSV)
        return JSONResponse(jobs_data.job_document(report))

    @router.get(
        "/attempts/{name}",
        summary="Return an attempt with machines, notices, journal and exact costs",
        responses=JSON_OR_CSV,
    )
    def get_attempt(request: Request, name: str, format: Form = "json") -> Response:  # noqa: A002
        report = find_attempt(site.asked_by(request), name)
        if report is None:
            return answer_error(request, 404, "there is no such attempt", "GET /api/v1/jobs lists them")
        if format == "csv":
            return Response(jobs_data.costs_as_csv(report), media_type=CSV)
        return JSONResponse(jobs_data.attempt_document(report))

    return router
