"""The page of a month's budgets, and the forms that set one, remove it and put it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qsl

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import Response

from pricing.money import ZERO, Usd
from pricing.problems import InvalidInputError, Problem
from router.access.identity import Permission
from router.app.queries.budgets import (
    UNKNOWN_OWNER,
    NoBudgetError,
    may_set,
    owner_is_known,
    remove_budget,
    removed_budgets,
    require_set,
    restore_budget,
    set_budget,
)
from router.app.queries.context import QueryContext
from router.console.answers import CSV, HTML, CachedAnswer, lead_on
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.console.spend_questions import SpendView, kept_budgets, read_month, read_question
from router.ledger.budget import Budget, BudgetStatus, Scope, parse_percents
from router.ledger.entry import ClosedError
from router.ledger.month import Month
from router.render.showback_page import BudgetForm, BudgetLine, PageOfMonth, SpendLinks, budgets_page
from router.render.showback_text import standing_table

_MOST_BYTES = 8192
_MESSAGES = {
    "set": "The budget is set.",
    "unknown": f"The budget is set; {UNKNOWN_OWNER}.",
    "removed": "The budget is removed. It can be put back below.",
    "restored": "The budget is as it was.",
}
_CLOSED = "closed books change by corrections in open ones alone"


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/budgets")
    async def budgets(request: Request, month: str = "", basis: str = "", done: str = "") -> Response:
        return await _page(site, request, month, basis, _MESSAGES.get(done, ""))

    @router.get("/budgets.csv")
    async def as_csv(request: Request, month: str = "", basis: str = "") -> Response:
        question = await read_question(site, request, month, SpendView(basis=basis))
        _, found = (await kept_budgets(site, question)).value
        answer = CachedAnswer.of(standing_table(found.standings, question.basis.value).csv(found.standings), CSV)
        response = answer.response(request)
        response.headers["Content-Disposition"] = f'attachment; filename="budgets-{question.month}.csv"'
        return response

    @router.post("/budgets")
    async def put(request: Request) -> Response:
        return await _set(site, request)

    @router.post("/budgets/remove")
    async def remove(request: Request) -> Response:
        return await _remove(site, request)

    @router.post("/budgets/restore")
    async def restore(request: Request) -> Response:
        return await _restore(site, request)

    return router


async def _page(
    site: ConsoleSite, request: Request, month: str, basis: str, message: str, form: BudgetForm | None = None
) -> Response:
    """Return the page; ``form`` is what was sent and could not be set, and what is wrong with it."""
    context, view = site.asked_by(request), SpendView(basis=basis)
    question = await read_question(site, request, month or str(Month.of(site.context.clock())), view)
    kept = await kept_budgets(site, question)
    now, found = kept.value
    first_open = await site.recent.get("first open month", lambda: _first_open(context))
    asked = f"?month={question.month}" + (f"&basis={basis}" if basis else "")
    frame = site.frame(
        request,
        "/budgets",
        message=message,
        data_links=(("CSV", f"/budgets.csv{asked}"), ("JSON", f"/api/v1/budgets{asked}")),
    )
    of = PageOfMonth(question.month, now, question.basis.value)
    links, scopes = view.links(question.month), _scopes(context)

    def make() -> CachedAnswer:
        lines = [_line(context, each, links) for each in found.standings]
        removed = removed_budgets(context, question.month)
        asked = BudgetForm(scopes, first_open) if form is None else replace(form, scopes=scopes, first_open=first_open)
        return CachedAnswer.of(budgets_page(lines, removed, found.others, of, frame, asked), HTML, status)

    status = 200 if form is None else form.status
    if form is not None:
        return (await run_sync(make)).response(request)
    grants = context.identity.teams(Permission.SET_BUDGETS)
    key = ("budgets", question, kept.version, frame, grants, first_open)
    return (await site.answers.get(key, make)).response(request)


def _line(context: QueryContext, status: BudgetStatus, links: SpendLinks) -> BudgetLine:
    scope, name = status.budget.scope, status.budget.name
    url = links.page() if scope is Scope.ALL else links.level(**{scope.value: name})
    return BudgetLine(status, may_set(context, scope, name), url if status.spent.nanos else None)


def _scopes(context: QueryContext) -> tuple[str, ...]:
    teams = context.identity.teams(Permission.SET_BUDGETS)
    if teams.is_all:
        return tuple(scope.value for scope in (Scope.TEAM, Scope.PROJECT, Scope.ALL))
    return (Scope.TEAM.value,) if teams.teams else ()


def _first_open(context: QueryContext) -> Month:
    """Return the month from which a budget set now would hold: this one, or the first whose books are open."""
    closed = max((each.period for each in context.store.periods.closings()), default=None)
    now = Month.of(context.clock())
    return now if closed is None else max(now, closed.next)


async def _set(site: ConsoleSite, request: Request) -> Response:
    context = site.asked_by(request)
    fields = await _read_form(request)
    context.identity.require(Permission.SET_BUDGETS)
    try:
        budget = _read_budget(context, fields)
        require_set(context, budget.scope, budget.name)
        await run_sync(set_budget, context, budget)
    except InvalidInputError as error:
        return await _page(site, request, "", "", "", _refused_form(fields, error.problems, 400))
    except ClosedError as error:
        problem = Problem("", "since", str(error).replace("`--from ", "`"), _CLOSED)
        return await _page(site, request, "", "", "", _refused_form(fields, (problem,), 409))
    is_known = await run_sync(owner_is_known, context, budget.scope, budget.name)
    return lead_on(request, f"/budgets?month={budget.since}&done={'set' if is_known else 'unknown'}")


def _refused_form(fields: Mapping[str, str], problems: Sequence[Problem], status: int) -> BudgetForm:
    found: dict[str, tuple[str, ...]] = {}
    for problem in problems:
        found[problem.field] = (*found.get(problem.field, ()), problem.sentence)
    return BudgetForm(values=fields, problems=found, status=status)


async def _remove(site: ConsoleSite, request: Request) -> Response:
    context = site.asked_by(request)
    fields = await _read_form(request)
    scope, name = _read_owner(fields)
    require_set(context, scope, name)
    at, who, since = context.clock(), context.identity.name, _read_since(context, fields)
    budget = Budget(scope=scope, name=name, since=since, usd=None, who=who, at=at)
    return await _change(request, since, "removed", lambda: remove_budget(context, budget))


async def _restore(site: ConsoleSite, request: Request) -> Response:
    context = site.asked_by(request)
    fields = await _read_form(request)
    scope, name = _read_owner(fields)
    require_set(context, scope, name)
    since = _read_since(context, fields)
    change = partial(restore_budget, context, scope, name, since, context.clock())
    return await _change(request, since, "restored", change)


async def _change(request: Request, since: Month, done: str, change: Callable[[], None]) -> Response:
    """Make a change that a button asks for, and lead to the month from which it holds."""
    try:
        await run_sync(change)
    except ClosedError as error:
        return answer_error(request, 409, str(error).replace("`--from ", "`"), _CLOSED)
    except NoBudgetError as error:
        return answer_error(request, 404, str(error), "the page of budgets shows those that do")
    return lead_on(request, f"/budgets?month={since}&done={done}")


async def _read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form, the last of each name. InvalidInputError for what is no form, or a long one."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise InvalidInputError.single(f"is longer than {_MOST_BYTES} bytes", field="form")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=32)
    except ValueError:
        raise InvalidInputError.single("cannot be read", field="form", remedy="send the form of the page") from None
    return dict(pairs)


def _read_owner(fields: Mapping[str, str]) -> tuple[Scope, str]:
    try:
        scope = Scope(fields.get("scope", ""))
    except ValueError:
        raise InvalidInputError.single("is none of team, project, all", field="scope") from None
    name = fields.get("name", "").strip()
    if scope is Scope.ALL and name:
        what = "is for a budget of a team or project; one of all has none"
        raise InvalidInputError.single(what, field="name", remedy="leave it empty, or choose team or project")
    if scope is not Scope.ALL and not name:
        raise InvalidInputError.single("is empty", field="name", remedy=f"name the {scope.value}")
    if len(name) > 200 or "\0" in name:
        raise InvalidInputError.single("is longer than 200 characters, or has ones that no name has", field="name")
    return scope, name


def _read_since(context: QueryContext, fields: Mapping[str, str]) -> Month:
    return read_month(fields.get("since", "").strip() or str(_first_open(context)))


def _read_budget(context: QueryContext, fields: Mapping[str, str]) -> Budget:
    """Return the budget that a form asks to set. InvalidInputError has what is wrong with each field, all at once."""
    problems: list[Problem] = []
    since = _first_open(context)
    budget = Budget(
        scope=Scope.ALL,
        name="",
        since=since,
        usd=ZERO,
        hard=fields.get("hard", "") == "yes",
        who=context.identity.name,
        at=context.clock(),
    )

    def read_usd() -> Budget:
        return replace(budget, usd=Usd.parse(fields.get("usd", "").strip().removeprefix("$").replace(",", "")))

    def read_warn() -> Budget:
        return replace(budget, warn=parse_percents(fields.get("warn", "50,80,100")))

    def read_owner() -> Budget:
        scope, name = _read_owner(fields)
        return replace(budget, scope=scope, name=name)

    readers = (
        ("name", read_owner, ""),
        ("usd", read_usd, "write dollars such as 12000 or 12,000.50"),
        ("since", lambda: replace(budget, since=_read_since(context, fields)), "write a month such as " + str(since)),
        ("warn", read_warn, "write whole percents such as 50,80,100"),
    )
    for field, read, remedy in readers:
        try:
            budget = read()
        except InvalidInputError as error:
            problems += (replace(each, field=field if each.field == "month" else each.field) for each in error.problems)
        except ValueError as error:
            problems.append(
                Problem("", field, str(error)[:300] if fields.get(field, "").strip() else "is empty", remedy)
            )
    if problems:
        raise InvalidInputError(problems)
    return budget
