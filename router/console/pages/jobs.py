"""The pages of jobs: all gangs, one job, one attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.queries.plans import find_night_of
from router.console.answers import HTML, CachedAnswer
from router.console.error_answers import answer_error
from router.console.query_work import draw_attempt, draw_job, draw_jobs
from router.console.site import ConsoleSite
from router.render.jobs_page import JobsView
from router.render.pages import PageFrame
from router.render.planned_job_page import planned_job_url

_JOBS = (("CSV", "/api/v1/jobs?format=csv"), ("JSON", "/api/v1/jobs"))


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/jobs")
    async def jobs(
        request: Request,
        part: Annotated[str, Query()] = "",
        refresh: Annotated[str, Query()] = "on",
        q: Annotated[str, Query(max_length=200)] = "",
        sort: Annotated[str, Query(max_length=20)] = "",
    ) -> Response:
        context = site.asked_by(request)
        view = JobsView(q, sort, context.identity.own_teams)
        teams = context.identity.require(Permission.READ_JOBS).teams
        refreshing = refresh != "off"
        frame = site.frame(request, "/jobs", data_links=_JOBS)
        drawn = None if part == "live" else frame
        key = ("jobs", teams, refreshing, drawn, view)
        return await site.recent.respond(
            request, key, lambda: site.job_work.ask_for(context, draw_jobs, drawn, refreshing, view)
        )

    @router.get("/jobs/{name:path}")
    async def job(request: Request, name: str) -> Response:
        url = f"/api/v1/jobs/{quote(name, safe='')}"
        answer = await _draw(site, request, draw_job, name, (("CSV of attempts", f"{url}?format=csv"), ("JSON", url)))
        if answer is None:
            context = site.asked_by(request)
            key = ("is planned", id(site), name, context.identity.teams(Permission.READ_PLANS))
            if await site.recent.get(key, lambda: find_night_of(context, name)):
                return RedirectResponse(planned_job_url("latest", name), 303)
            return answer_error(request, 404, "there is no such job", "see /jobs for those that run, or /tonight")
        return answer.response(request)

    @router.get("/attempts/{name}")
    async def attempt(request: Request, name: str) -> Response:
        url = f"/api/v1/attempts/{quote(name, safe='')}"
        answer = await _draw(site, request, draw_attempt, name, (("CSV of costs", f"{url}?format=csv"), ("JSON", url)))
        if answer is None:
            return answer_error(request, 404, "there is no such attempt", "see /jobs for those that run")
        return answer.response(request)

    return router


async def _draw(
    site: ConsoleSite,
    request: Request,
    draw: Callable[[QueryContext, str, PageFrame], str | None],
    name: str,
    data_links: tuple[tuple[str, str], ...],
) -> CachedAnswer | None:
    """Return the page of a job or an attempt, shared for a moment; None where there is none that may be seen."""
    context = site.asked_by(request)
    seen = (
        context.identity.require(Permission.READ_JOBS),
        context.identity.teams(Permission.READ_PLANS),
        context.identity.teams(Permission.READ_QUOTES),
    )
    frame = site.frame(request, "/jobs", data_links=data_links)

    def make() -> CachedAnswer | None:
        text = site.job_work.ask_for(context, draw, name, frame)
        return None if text is None else CachedAnswer.of(text, HTML)

    return await site.recent.get((draw.__name__, name, seen, frame), make)
