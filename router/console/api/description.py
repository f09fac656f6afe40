"""The API about itself: forms of answers that many operations share, errors, the whole as a document, who asks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from router.access.identity import Permission
from router.console.site import ConsoleSite

_MEANINGS = {
    400: "What was asked cannot be answered: the message names line and field.",
    401: "Nobody is known by these credentials.",
    403: "Who asks has no permission for this, or not for that team.",
    404: "There is no such thing, or none that may be seen.",
    409: "It is in another state, or the same request is being answered.",
    413: "The request is too long.",
    422: "The request has not the form that this description requires.",
    429: "Too many requests, or too much work is queued.",
    503: "The state cannot be read or written now.",
}


class ErrorDetail(BaseModel):
    """The status, what is wrong, and what to do."""

    status: int
    message: str
    remedy: str = Field(description="What to do; empty where nothing is known.")


class ErrorAnswer(BaseModel):
    """Every answer that is an error."""

    error: ErrorDetail


# The answers that any operation may give beside its own; given to each router when it is included.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": meaning} for status, meaning in _MEANINGS.items()
}
Form = Annotated[Literal["json", "csv"], Query(description="Form of the answer.")]
# Operations whose answer is JSON, or with ``format=csv`` a table.
JSON_OR_CSV: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A document, or with `format=csv` a table.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/csv": {"schema": {"type": "string"}}},
    }
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application's API."""
    document = app.openapi()
    document["info"]["description"] = "Plans, quotes, jobs, prices and spending, each within what who asks may see."
    document.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of `stepfare token`."}
    }
    document["security"] = [{"token": []}]
    return document


class PermissionAnswer(BaseModel):
    """A permission, and the teams for which it is given; null is all teams."""

    permission: Permission
    teams: list[str] | None


class IdentityAnswer(BaseModel):
    """The identity of the request, and its permissions."""

    name: str
    grants: list[str] = Field(description="Roles, each for all teams or written `role:team`.")
    scopes: list[Permission] | None = Field(description="What a token is confined to; null confines to nothing.")
    permissions: list[PermissionAnswer]


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of who asks, and of the document, which is published with the documentation."""
    router = APIRouter(prefix="/api/v1", tags=["me"])

    @router.get("/me", summary="Return who asks, and what they may do")
    async def me(request: Request) -> IdentityAnswer:
        identity = site.asked_by(request).identity
        permitted = []
        for permission in Permission:
            teams = identity.teams(permission).teams
            if teams is None or teams:
                permitted.append(
                    PermissionAnswer(permission=permission, teams=None if teams is None else sorted(teams))
                )
        return IdentityAnswer(
            name=identity.name,
            grants=[str(grant) for grant in identity.grants],
            scopes=None if identity.scopes is None else sorted(identity.scopes),
            permissions=permitted,
        )

    @router.get("/openapi.json", include_in_schema=False)
    def describe(request: Request) -> Response:
        return JSONResponse(openapi_document(request.app))

    return router
