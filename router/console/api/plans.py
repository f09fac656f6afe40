"""The API of plans: list them, read and compare them, ask for one, approve one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import Response
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.app.queries.approvals import LONGEST_NOTE, change_approval, find_plan_approvals
from router.app.queries.context import QueryContext
from router.app.queries.plan_making import PlanAsked
from router.app.queries.plans import compare_plans, find_digest, find_plan, page_of_plans, previous_plan, whole_plan
from router.console.answers import JSON, CachedAnswer
from router.console.api.tasks import TaskAnswer, accepted_task
from router.console.error_answers import NothingThereError, answer_error
from router.console.site import ConsoleSite
from router.console.task_kinds import submit_plan
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_to_json
from router.render.plan_diff_text import diff_json

MAX_LISTED = 200
_NO_SUCH, _MAKE = "no such plan is stored", "POST /api/v1/plans makes one"
Document = dict[str, Any]
Name = Annotated[str, Path(max_length=80, description="latest (of tonight's name), or a digest or its first digits.")]


# An exact amount as text.
Amount = Annotated[str, BeforeValidator(str)]


class RecordAnswer(BaseModel):
    """An answer that :meth:`model_validate` makes of a record: each field is its attribute of that name."""

    model_config = ConfigDict(from_attributes=True)


def _plan_links(digest: str) -> dict[str, str]:
    return {"self": f"/api/v1/plans/{digest}", "page": f"/plans/{digest}"}


class PlanRow(RecordAnswer):
    """A plan that was made. Jobs and cost are of what may be seen; the gap is the whole plan's."""

    digest: str
    plan_id: str
    as_of: datetime
    made_at: datetime
    made_by: str
    name: str
    jobs: int
    placed: int
    cost_usd: Amount
    gap: float
    links: Annotated[dict[str, str], BeforeValidator(_plan_links)] = Field(validation_alias="digest")


class PlanList(BaseModel):
    """Plans, the latest first. ``next`` is the ``before`` of the next part; null after the last."""

    plans: list[PlanRow]
    next: datetime | None


class ApprovalAsked(BaseModel):
    """A remark, which the audit log keeps."""

    model_config = ConfigDict(extra="forbid")

    note: str = Field(default="", max_length=LONGEST_NOTE)


class PlanApproval(RecordAnswer):
    """One approval; ``state`` is counts, revoked, expired, not allowed, or recorded where there are no rules."""

    name: str = Field(validation_alias=AliasPath("approval", "name"))
    at: datetime = Field(validation_alias=AliasPath("approval", "at"))
    until: datetime | None
    state: str
    note: str = Field(validation_alias=AliasPath("approval", "note"))


class ApprovalAnswer(RecordAnswer):
    """The approvals of a plan, and what is missing before it may be applied."""

    digest: str
    at_risk_usd: Amount
    needed: int | None = Field(description="How many must approve; null without rules.")
    missing: int
    approvers: list[str]
    approvals: list[PlanApproval]
    refusals: list[str]
    expires_at: datetime


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes below ``/api/v1/plans``."""
    router = APIRouter(prefix="/api/v1/plans", tags=["plans"])
    _add_reading(router, site)
    _add_approvals(router, site)

    @router.post("", summary="Ask for a plan; its task has the result", status_code=202, response_model=TaskAnswer)
    def make_plan(request: Request, body: PlanAsked) -> Response:
        return accepted_task(submit_plan(site.asked_by(request), body))

    return router


def _add_reading(router: APIRouter, site: ConsoleSite) -> None:
    @router.get("", summary="List plans that were made, the latest first", response_model=PlanList)
    async def list_plans(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
        before: Annotated[str | None, Query(max_length=40, description="Only plans for earlier moments.")] = None,
        name: Annotated[str | None, Query(max_length=63, description="Only plans of this name.")] = None,
    ) -> Response:
        context, moment = site.asked_by(request), parse_moment(before)
        seen = context.identity.require(Permission.READ_PLANS)
        key = ("plans by API", id(site), seen, limit, moment, name)
        return (await site.recent.get(key, lambda: _plan_list(context, limit, moment, name))).response(request)

    @router.get(
        "/{name}",
        summary="Return a plan as `stepfare plan -o json` writes it, restricted to the jobs that may be seen",
        response_model=Document,
    )
    async def get_plan(request: Request, name: Name) -> Response:
        context = site.asked_by(request)
        seen = context.identity.require(Permission.READ_PLANS).teams
        digest = await site.recent.get(("find digest", id(site), name), lambda: find_digest(context, name))

        def write() -> CachedAnswer:
            stored = None if digest is None else find_plan(context, digest)
            if stored is None:
                return CachedAnswer.of("", JSON, 404)
            return CachedAnswer.of(plan_to_json(stored.plan), JSON)

        answer = await site.answers.get(("plan as JSON", digest, seen), write)
        if answer.status == 404:
            return answer_error(request, 404, _NO_SUCH, _MAKE)
        return answer.response(request)

    @router.get("/{name}/diff", summary="Return what changed, as `stepfare plan diff -o json`", response_model=Document)
    def get_diff(
        request: Request,
        name: Name,
        against: Annotated[str | None, Query(max_length=80, description="Else the plan of the night before.")] = None,
    ) -> Response:
        context = site.asked_by(request)
        after = find_plan(context, name)
        if after is None:
            return answer_error(request, 404, _NO_SUCH, _MAKE)
        before = previous_plan(context, after, name) if against is None else find_plan(context, against)
        if before is None:
            return answer_error(request, 404, "no such earlier plan is stored", "name one as `against`")
        return Response(diff_json(compare_plans(context, before, after)), media_type=JSON)


def _plan_list(context: QueryContext, limit: int, before: datetime | None, name: str | None) -> CachedAnswer:
    found, following = page_of_plans(context, limit, before, name)
    plans = PlanList(plans=[PlanRow.model_validate(plan) for plan in found], next=following)
    return CachedAnswer.of(plans.model_dump_json(), JSON)


def _add_approvals(router: APIRouter, site: ConsoleSite) -> None:
    @router.get("/{name}/approvals", summary="Return who approved a plan, and what is missing")
    def get_approvals(request: Request, name: Name) -> ApprovalAnswer:
        context = site.asked_by(request)
        return _approvals(context, *_whole(context, name))

    @router.post("/{name}/approvals", summary="Approve a plan as who asks, by the rules of approvals", status_code=201)
    def approve(
        request: Request, name: Name, approval: Annotated[ApprovalAsked | None, Body(title="Asked")] = None
    ) -> ApprovalAnswer:
        context = site.asked_by(request)
        digest, plan = _whole(context, name, Permission.APPROVE_PLANS)
        change_approval(context, plan, digest, "" if approval is None else approval.note, revokes=False)
        return _approvals(context, digest, plan)

    @router.delete("/{name}/approvals", summary="Revoke the approval of who asks")
    def revoke(
        request: Request, name: Name, note: Annotated[str, Query(max_length=LONGEST_NOTE, description="A remark.")] = ""
    ) -> ApprovalAnswer:
        context = site.asked_by(request)
        digest, plan = _whole(context, name, Permission.APPROVE_PLANS)
        change_approval(context, plan, digest, note, revokes=True)
        return _approvals(context, digest, plan)


def _whole(context: QueryContext, name: str, permission: Permission = Permission.READ_PLANS) -> tuple[str, Plan]:
    context.identity.require(permission)
    digest = find_digest(context, name)
    plan = None if digest is None else whole_plan(context.store, digest)
    if digest is None or plan is None:
        raise NothingThereError(_NO_SUCH, _MAKE)
    return digest, plan


def _approvals(context: QueryContext, digest: str, plan: Plan) -> ApprovalAnswer:
    found = find_plan_approvals(context, plan, digest)
    if found is None:
        # Approvals are of the whole plan, and who asks may see a part of it.
        raise NothingThereError(_NO_SUCH, _MAKE)
    return ApprovalAnswer.model_validate(found)


def parse_moment(text: str | None) -> datetime | None:
    """Return the moment in a URL, None for None. InvalidInputError for what is no moment with its zone."""
    if text is None:
        return None
    try:
        # A plus of a time zone arrives as a space where a client does not escape it.
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidInputError.single("is no moment", field="before", remedy="write one such as 2026-11-21T18:00:00Z")
