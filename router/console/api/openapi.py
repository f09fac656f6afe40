"""The description of the API, served to who is signed in and published with the documentation."""

from __future__ import annotations

import json
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from router.console.answers import AnswerCache
from router.console.site import ConsoleSite
from router.queries.context import QueryContext

PREFIX = "/api/v1"


def make_router() -> APIRouter:
    """Return the route of the description."""
    router = APIRouter(prefix=PREFIX, include_in_schema=False)

    @router.get("/openapi.json")
    def describe(request: Request) -> Response:
        return JSONResponse(openapi_document(request.app))

    return router


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application's API."""
    document = app.openapi()
    document["info"]["description"] = "Plans, quotes, jobs, prices and spending, each within what who asks may see."
    document.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of `stepfare token`."}
    }
    document["security"] = [{"token": []}]
    return document


def openapi_text() -> str:
    """Return the description of the console's API as it is published."""
    from router.console.app import make_console

    # Describing it opens nothing, so there is no state to ask.
    site = ConsoleSite(cast("QueryContext", None), lambda _: None, AnswerCache())
    return json.dumps(openapi_document(make_console(site)), indent=2, ensure_ascii=False) + "\n"
