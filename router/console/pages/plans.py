"""Pages of plans: tonight's, the list, one of an earlier night, what changed, and its approval."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from pricing.problems import InvalidInputError
from pricing.units import format_utc
from router.access.identity import Permission
from router.app.queries.approvals import (
    approval_rules,
    change_approval,
    find_plan_approvals,
    standing_approvals,
)
from router.app.queries.context import QueryContext
from router.app.queries.jobs import has_run
from router.app.queries.plans import (
    ANOTHER_NIGHT,
    StoredPlan,
    compare_plans,
    find_digest,
    find_plan,
    list_last_plans,
    moment_and_name,
    page_of_plans,
    previous_digest,
    whole_plan,
)
from router.console.answers import CSV, HTML, JSON, CachedAnswer
from router.console.api.plans import parse_moment
from router.console.error_answers import NothingThereError, answer_error
from router.console.query_work import view_job_quotes
from router.console.site import ConsoleSite
from router.planning.document.plan_names import NIGHT
from router.planning.explain.changes import PlanDiff
from router.render.jobs_page import job_url
from router.render.pages import PageFrame, PageParts, fill_frame, fill_template
from router.render.plan_csv import PlanListRow, changes_csv, jobs_csv, plans_csv
from router.render.plan_diff_text import diff_json
from router.render.planned_job_page import planned_job_page
from router.render.since_view import SinceView, plan_diff_page, since_view
from router.render.tonight_page import ROWS, PlanUrls, tonight_parts
from router.state.plans import ListedPlan

_LISTED = 50
_NO_SUCH = "no such plan is stored"
_MAKE = f"stepfare plan jobs/ --name {NIGHT} --out plan.json"
_DONE = {
    "approved": "Your approval is recorded.",
    "revoked": "Your approval is revoked.",
    "quote": "The quote is accepted, and this is its plan. Nothing is ordered before it is applied.",
}


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False)
    _add_lists(router, site)
    _add_plan(router, site)
    _add_comparison(router, site)
    return router


def _add_lists(router: APIRouter, site: ConsoleSite) -> None:
    @router.get("/plans")
    async def plans(request: Request, before: str = "") -> Response:
        context, moment = site.asked_by(request), parse_moment(before or None)
        seen = context.identity.require(Permission.READ_PLANS)
        rows, names, last = await site.recent.get(
            ("plans", id(site), seen, moment), lambda: _list_rows(context, moment)
        )
        older = "" if last is None else f"/plans?before={format_utc(last)}"
        query = "" if moment is None else f"?before={format_utc(moment)}"
        links = (("CSV", f"/plans.csv{query}"), ("JSON", f"/api/v1/plans{query}"))
        frame = site.frame(request, "/tonight", data_links=links)
        now = context.clock()

        # Drawn again each minute, since it says as of when.
        key = ("plan list", rows, names, older, f"{now:%Y-%m-%dT%H:%M}", frame)
        values = {"frame": frame, "rows": rows, "names": names, "older": older, "now": now}
        return await site.answers.respond(request, key, lambda: fill_template("plan_list.html", **values))

    @router.get("/plans.csv")
    def plans_as_csv(request: Request, before: str = "") -> Response:
        return _download(plans_csv(_list_rows(site.asked_by(request), parse_moment(before or None))[0]), "plans.csv")


def _add_plan(router: APIRouter, site: ConsoleSite) -> None:
    @router.get("/tonight")
    async def tonight(request: Request, rows: str = "", done: str = "") -> Response:
        return await _plan_page(site, request, "latest", is_long=rows == "all", done=done)

    @router.get("/plans/{name}")
    async def plan(request: Request, name: str, rows: str = "", done: str = "") -> Response:
        return await _plan_page(site, request, name, is_long=rows == "all", done=done)

    @router.get("/plans/{name}/jobs/{job:path}")
    async def planned_job(request: Request, name: str, job: str) -> Response:
        return await _planned_job_page(site, request, name, job)

    @router.get("/plans/{name}/jobs.csv")
    def jobs(request: Request, name: str) -> Response:
        stored = find_plan(site.asked_by(request), name)
        if stored is None:
            raise NothingThereError(_NO_SUCH, _MAKE)
        return _download(jobs_csv(stored.plan), f"plan-{stored.digest[:12]}-jobs.csv")

    @router.post("/plans/{name}/approve")
    def approve(request: Request, name: str, note: Annotated[str, Form()] = "") -> Response:
        return _change_approval(site, request, name, note, revokes=False)

    @router.post("/plans/{name}/revoke")
    def revoke(request: Request, name: str, note: Annotated[str, Form()] = "") -> Response:
        return _change_approval(site, request, name, note, revokes=True)


def _add_comparison(router: APIRouter, site: ConsoleSite) -> None:
    @router.get("/plans/{name}/diff")
    async def diff(request: Request, name: str, against: str = "") -> Response:
        context = site.asked_by(request)
        teams = context.identity.require(Permission.READ_PLANS).teams
        before, after = await site.recent.get(
            ("find plans", id(site), name, against), lambda: _find_both(context, name, against)
        )
        at, query = f"/plans/{after}/diff", f"?against={before}"
        frame = site.frame(request, "/tonight", data_links=(("CSV", f"{at}.csv{query}"), ("JSON", f"{at}.json{query}")))

        def draw() -> str:
            earlier, later, changes = _compare(context, before, after)
            view = since_view(changes, earlier.plan, before, later.plan)
            return plan_diff_page(later.plan, after, view, frame)

        return await site.answers.respond(request, ("plan diff", before, after, teams, frame), draw)

    @router.get("/plans/{name}/diff.csv")
    def diff_as_csv(request: Request, name: str, against: str = "") -> Response:
        context = site.asked_by(request)
        before, after = _find_both(context, name, against)
        return _download(changes_csv(_compare(context, before, after)[2]), f"plan-{after[:12]}-changes.csv")

    @router.get("/plans/{name}/diff.json")
    def diff_as_json(request: Request, name: str, against: str = "") -> Response:
        context = site.asked_by(request)
        return Response(diff_json(_compare(context, *_find_both(context, name, against))[2]), media_type=JSON)


async def _plan_page(site: ConsoleSite, request: Request, name: str, *, is_long: bool, done: str) -> Response:
    """Return the page of a plan. What it says of the plan is made once for all who see the same teams."""
    context = site.asked_by(request)
    teams = context.identity.require(Permission.READ_PLANS).teams
    found = await site.recent.get(("find plan", id(site), name), lambda: _find(context, name))
    if found is None:
        return answer_error(request, 404, *_missing(context, name))
    digest, before, plan_name = found  # not ``name``: what was asked for is found again by it later
    at = f"/plans/{digest}"
    links = (("jobs as CSV", f"{at}/jobs.csv"), ("JSON", f"/api/v1{at}"))
    frame = site.frame(request, "/tonight", data_links=links, message=_DONE.get(done, ""))
    asked = ("approval", id(site), digest, context.identity, frame.csrf_token)
    box = await site.recent.get(asked, lambda: _approval_box(context, digest, frame))

    def make_parts() -> CachedAnswer:
        return CachedAnswer.of(json.dumps(astuple(_parts(context, digest, before, plan_name, is_long=is_long))), JSON)

    key = (digest, before, plan_name, teams, is_long)
    parts = await site.answers.get(("plan parts", *key), make_parts)

    def draw() -> str:
        return fill_frame(PageParts(*(Markup(part) for part in json.loads(parts.body))), frame, box)

    return await site.answers.respond(request, ("plan", *key, frame, box), draw)


async def _planned_job_page(site: ConsoleSite, request: Request, name: str, job: str) -> Response:
    context = site.asked_by(request)
    seen = (
        context.identity.require(Permission.READ_PLANS),
        context.identity.teams(Permission.READ_JOBS),
        context.identity.teams(Permission.READ_QUOTES),
    )
    frame = site.frame(request, "/tonight")

    def make_page() -> CachedAnswer | None:
        stored = find_plan(context, name)
        planned = None if stored is None else next((each for each in stored.plan.jobs if each.job == job), None)
        if stored is None or planned is None:
            return None
        url = None
        if context.identity.may(Permission.READ_JOBS):
            url = job_url(job) if has_run(context, job) else ""
        quotes = view_job_quotes(context, job, planned.team)
        return CachedAnswer.of(planned_job_page(stored.plan, stored.digest, planned, url, frame, quotes), HTML)

    answer = await site.recent.get(("planned job", id(site), name, job, seen, frame), make_page)
    if answer is None:
        return answer_error(request, 404, "the plan has no such job", "see /tonight for the jobs of tonight's plan")
    return answer.response(request)


def _missing(context: QueryContext, name: str) -> tuple[str, str]:
    if name != "latest":
        return _NO_SUCH, _MAKE
    return f"no plan named {context.night} was made yet", f"stepfare plan jobs/ --name {context.night} --out plan.json"


def _find(context: QueryContext, name: str) -> tuple[str, str | None, str] | None:
    """Return the digest of a plan, that of its name's plan of the night before, and this name; None without a plan."""
    digest = find_digest(context, name)
    found = None if digest is None else moment_and_name(context, digest, name)
    if digest is None or found is None:
        return None
    return digest, previous_digest(context.store, *found), found[1]


def _parts(context: QueryContext, digest: str, before: str | None, name: str, *, is_long: bool) -> PageParts:
    stored = find_plan(context, digest)
    if stored is None:
        raise InvalidInputError.single("the plan is no longer stored", remedy=_MAKE)
    at = f"/plans/{digest}"
    since = _since(context, stored, before)
    urls = PlanUrls(
        diff=f"{at}/diff" if since is not None else "",
        csv=f"{at}/jobs.csv",
        json=f"/api/v1{at}",
        all="" if is_long else f"{at}?rows=all#jobs",
        jobs=True,
    )
    rows = max(ROWS, len(stored.plan.jobs)) if is_long else ROWS
    return tonight_parts(replace(stored.plan, name=name), digest, since, urls, rows)


def _since(context: QueryContext, stored: StoredPlan, before: str | None) -> SinceView | None:
    if before is None:
        return None
    earlier, _, changes = _compare(context, before, stored.digest)
    return since_view(changes, earlier.plan, before, stored.plan)


def _find_both(context: QueryContext, name: str, against: str) -> tuple[str, str]:
    """Return the digests of the earlier plan and of the later one. NothingThereError where one is not stored."""
    found = _find(context, name)
    if found is None:
        raise NothingThereError(_NO_SUCH, _MAKE)
    digest, previous, _ = found
    before = find_digest(context, against) if against else previous
    if before is None:
        what = "no such earlier plan is stored" if against else "no plan of an earlier night is stored"
        raise NothingThereError(what, _MAKE)
    return before, digest


def _compare(context: QueryContext, before: str, after: str) -> tuple[StoredPlan, StoredPlan, PlanDiff]:
    earlier, later = find_plan(context, before), find_plan(context, after)
    if earlier is None or later is None:
        raise InvalidInputError.single("the plan is no longer stored", remedy=_MAKE)
    return earlier, later, compare_plans(context, earlier, later)


def _list_rows(
    context: QueryContext, before: datetime | None
) -> tuple[tuple[PlanListRow, ...], tuple[ListedPlan, ...], datetime | None]:
    """Return a page of plans, on the first the last of each name, and the moment before which the next page begins.

    The moment is None after the last page.
    """
    listed, last = page_of_plans(context, _LISTED, before)
    approvals = None
    if context.identity.teams(Permission.READ_PLANS).is_all:
        approvals = standing_approvals(context, approval_rules(context.settings, context.store))
    oldest = context.store.made_plans.oldest()
    rows = tuple(
        PlanListRow(
            plan=plan,
            approvals=None if approvals is None else approvals.get(plan.digest, ()),
            has_earlier=plan.name in oldest and oldest[plan.name] <= plan.as_of - ANOTHER_NIGHT,
        )
        for plan in listed
    )
    names = list_last_plans(context) if before is None else ()
    return rows, names, last


def _approval_box(context: QueryContext, digest: str, frame: PageFrame) -> Markup:
    """Return the box of the plan's approval; nothing for who may not see the plan's money as a whole."""
    plan = whole_plan(context.store, digest)
    found = None if plan is None else find_plan_approvals(context, plan, digest)
    return Markup() if found is None else Markup(fill_template("approval.html", box=found, csrf_token=frame.csrf_token))


def _change_approval(site: ConsoleSite, request: Request, name: str, note: str, *, revokes: bool) -> Response:
    """Record an approval or a revocation and lead back to the plan. ApprovalRefusedError with the reason."""
    context = site.asked_by(request)
    digest = find_digest(context, name)
    plan = None if digest is None else whole_plan(context.store, digest)
    if digest is None or plan is None:
        raise NothingThereError(_NO_SUCH, _MAKE)
    change_approval(context, plan, digest, note, revokes=revokes)
    done = "revoked" if revokes else "approved"
    return RedirectResponse(f"/plans/{digest}?done={done}", 303)


def _download(text: str, name: str) -> Response:
    return Response(text, media_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'})
