"""The page of the audit log, newest first, for those who may read it for all teams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from router.access.identity import Permission
from router.app.queries.audit import AuditFilter, AuditTrail, accepted_policies, audit_content, read_audit_log
from router.app.queries.context import QueryContext
from router.console.answers import CSV, JSON
from router.console.site import ConsoleSite
from router.render.audit_page import AuditRow, audit_csv
from router.render.pages import PageFrame, fill_template

_SHOWN = 100


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/audit")
    async def audit(
        request: Request, who: str = "", what: str = "", plan: str = "", before: int | None = None
    ) -> Response:
        context, wanted = site.asked_by(request), AuditFilter(who, what, plan)
        context.identity.require_for_all(Permission.READ_AUDIT)
        words = {name: value for name, value in (("who", who), ("what", what), ("plan", plan)) if value}
        query = f"?{urlencode(words)}" if words else ""
        frame = site.frame(
            request, "/audit", data_links=(("CSV", f"/audit.csv{query}"), ("JSON", f"/audit.json{query}"))
        )

        key = ("audit", wanted, before, frame)
        return await site.recent.respond(request, key, lambda: _draw(context, wanted, words, before, frame))

    @router.get("/audit.csv")
    def audit_as_csv(request: Request, who: str = "", what: str = "", plan: str = "") -> Response:
        trail = read_audit_log(site.asked_by(request), AuditFilter(who, what, plan))
        return Response(audit_csv(_newest(trail, None)), media_type=CSV)

    @router.get("/audit.json")
    def audit_as_json(request: Request, who: str = "", what: str = "", plan: str = "") -> Response:
        trail = read_audit_log(site.asked_by(request), AuditFilter(who, what, plan))
        newest = replace(trail, entries=trail.entries[::-1])
        return Response(json.dumps(audit_content(newest), indent=2), media_type=JSON)

    return router


def _draw(
    context: QueryContext, audit_filter: AuditFilter, words: Mapping[str, str], before: int | None, frame: PageFrame
) -> str:
    trail = read_audit_log(context, audit_filter)
    newest = _newest(trail, before)
    stored = context.store.plans.stored(row.entry.digest for row in newest[:_SHOWN])
    shown = tuple(replace(row, has_plan=row.entry.digest in stored) for row in newest[:_SHOWN])
    return fill_template(
        "audit.html",
        frame=frame,
        trail=trail,
        chosen=audit_filter,
        rows=shown,
        older=f"/audit?{urlencode({**words, 'before': shown[-1].entry.seq})}" if len(newest) > _SHOWN else "",
        now=context.clock(),
    )


def _newest(trail: AuditTrail, before: int | None) -> tuple[AuditRow, ...]:
    return tuple(
        AuditRow(entry, accepted_policies(entry.details))
        for entry in reversed(trail.entries)
        if before is None or entry.seq < before
    )
