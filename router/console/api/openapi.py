"""The description of the API, served to who is signed in and published with the documentation."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

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
