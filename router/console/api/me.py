"""The API of who asks: name, roles, and what these permit."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from router.access.identity import Permission
from router.console.site import ConsoleSite


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
    """Return the route ``/api/v1/me``."""
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

    return router
