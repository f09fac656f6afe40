"""The page of tonight's plan, and of earlier ones."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from router.access.identity import Permission
from router.console.answers import CachedAnswer
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.queries.plans import find_plan
from router.render.tonight_page import tonight_page

HTML = "text/html; charset=utf-8"


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/tonight")
    @router.get("/plans/{name}")
    async def tonight(request: Request, name: str = "latest") -> Response:
        context = site.asked_by(request)
        teams = context.identity.require(Permission.READ_PLANS).teams
        stored = find_plan(context, name)
        if stored is None:
            return answer_error(request, 404, "no plan was made yet", "stepfare plan jobs/ --out plan.json")
        frame = site.frame(request, "/tonight", data_links=(("JSON", f"/api/v1/plans/{stored.digest}"),))
        answer = await site.answers.get(
            ("tonight", stored.digest, teams, frame), lambda: CachedAnswer.of(tonight_page(stored.plan, frame), HTML)
        )
        return answer.response(request)

    return router
