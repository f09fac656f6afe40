"""The page of the audit log, newest first, for those who may read it for all teams."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from router.console.answers import CachedAnswer
from router.console.pages.plans import CSV, HTML, JSON
from router.console.site import ConsoleSite
from router.queries.audit import AuditFilter, AuditTrail, accepted_policies, audit_content, read_audit_log
from router.render.audit_page import AuditRow, AuditView, audit_csv, audit_page

_SHOWN = 100


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/audit")
    def audit(request: Request, who: str = "", what: str = "", plan: str = "", before: int | None = None) -> Response:
        context = site.asked_by(request)
        trail = read_audit_log(context, AuditFilter(who, what, plan))
        newest = _newest(trail, before)
        words = {name: value for name, value in (("who", who), ("what", what), ("plan", plan)) if value}
        stored = context.store.plans.stored(row.entry.digest for row in newest[:_SHOWN])
        shown = tuple(replace(row, has_plan=row.entry.digest in stored) for row in newest[:_SHOWN])
        view = AuditView(
            rows=shown,
            fitting=len(trail.entries),
            count=trail.count,
            last_hash=trail.last_hash,
            broken=trail.broken,
            who=who,
            what=what,
            plan=plan,
            older=f"/audit?{urlencode({**words, 'before': shown[-1].entry.seq})}" if len(newest) > _SHOWN else "",
            now=context.clock(),
        )
        query = f"?{urlencode(words)}" if words else ""
        frame = site.frame(
            request, "/audit", data_links=(("CSV", f"/audit.csv{query}"), ("JSON", f"/audit.json{query}"))
        )
        return CachedAnswer.of(audit_page(view, frame), HTML).response(request)

    @router.get("/audit.csv")
    def audit_as_csv(request: Request, who: str = "", what: str = "", plan: str = "") -> Response:
        trail = read_audit_log(site.asked_by(request), AuditFilter(who, what, plan))
        return Response(audit_csv(_newest(trail, None)), media_type=CSV)

    @router.get("/audit.json")
    def audit_as_json(request: Request, who: str = "", what: str = "", plan: str = "") -> Response:
        trail = read_audit_log(site.asked_by(request), AuditFilter(who, what, plan))
        return Response(json.dumps(audit_content(trail), indent=2), media_type=JSON)

    return router


def _newest(trail: AuditTrail, before: int | None) -> tuple[AuditRow, ...]:
    """Return the entries of lower numbers than ``before``, newest first."""
    return tuple(
        AuditRow(entry, accepted_policies(entry.details))
        for entry in reversed(trail.entries)
        if before is None or entry.seq < before
    )
