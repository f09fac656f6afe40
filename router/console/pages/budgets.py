"""The page of a month's budgets, and the forms that set and remove one."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from urllib.parse import parse_qsl

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.console.answers import CachedAnswer
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.console.spend_questions import SpendView, kept_budgets, read_month, read_question
from router.ledger.budget import Budget, BudgetStatus, Scope
from router.ledger.entry import ClosedError
from router.ledger.month import Month
from router.queries.budgets import NoBudgetError, budget_record, may_set, remove_budget, require_set, set_budget
from router.queries.context import QueryContext
from router.render.spend_links import SpendLinks
from router.render.spend_page import BudgetLine, PageOfMonth, budgets_page
from router.showback.report.values import escape_formula

HTML = "text/html; charset=utf-8"
CSV = "text/csv; charset=utf-8"
_MOST_BYTES = 8192
_MESSAGES = {"set": "The budget is set.", "removed": "The budget is removed."}


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
        answer = CachedAnswer.of(_csv(found.standings, question.basis.value), CSV)
        response = answer.response(request)
        response.headers["Content-Disposition"] = f'attachment; filename="budgets-{question.month}.csv"'
        return response

    @router.post("/budgets")
    async def put(request: Request) -> Response:
        return await _change(site, request, removes=False)

    @router.post("/budgets/remove")
    async def remove(request: Request) -> Response:
        return await _change(site, request, removes=True)

    return router


async def _page(site: ConsoleSite, request: Request, month: str, basis: str, message: str) -> Response:
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
        return CachedAnswer.of(budgets_page(lines, found.others, of, frame, scopes=scopes, first_open=first_open), HTML)

    grants = context.identity.teams(Permission.SET_BUDGETS)
    key = ("budgets", question, kept.version, kept.made_at, frame, grants, first_open)
    return (await site.answers.get(key, make)).response(request)


def _line(context: QueryContext, each: BudgetStatus, links: SpendLinks) -> BudgetLine:
    scope, name = each.budget.scope, each.budget.name
    url = links.page() if scope is Scope.ALL else links.level(**{scope.value: name})
    return BudgetLine(each, may_set(context, scope, name), url if each.spent.nanos else None)


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


async def _change(site: ConsoleSite, request: Request, *, removes: bool) -> Response:
    context = site.asked_by(request)
    fields = await _read_form(request)
    scope, name = _read_owner(fields)
    require_set(context, scope, name)
    budget = _read_budget(context, scope, name, fields, removes=removes)
    try:
        await run_sync(remove_budget if removes else set_budget, context, budget)
    except ClosedError as error:
        remedy = "closed books change by corrections in open ones alone"
        return answer_error(request, 409, str(error).replace("`--from", "`From"), remedy)
    except NoBudgetError as error:
        return answer_error(request, 404, str(error), "the page of budgets shows those that do")
    return RedirectResponse(f"/budgets?month={budget.since}&done={'removed' if removes else 'set'}", 303)


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
    name = "" if scope is Scope.ALL else fields.get("name", "").strip()
    if scope is not Scope.ALL and not name:
        raise InvalidInputError.single("is empty", field="name", remedy=f"name the {scope.value}")
    if len(name) > 200 or "\0" in name:
        raise InvalidInputError.single("is longer than 200 characters, or has ones that no name has", field="name")
    return scope, name


def _read_budget(context: QueryContext, scope: Scope, name: str, fields: Mapping[str, str], *, removes: bool) -> Budget:
    since = read_month(fields.get("since", "").strip() or str(_first_open(context)))
    at, who = context.clock(), context.identity.name
    if removes:
        return Budget(scope=scope, name=name, since=since, usd=None, who=who, at=at)
    try:
        usd = Usd.parse(fields.get("usd", "").strip().removeprefix("$").replace(",", ""))
        percents = fields.get("warn", "50,80,100").split(",")
        warn = tuple(int(each.strip().removesuffix("%")) for each in percents if each.strip())
        hard = fields.get("hard", "") == "yes"
        return Budget(scope=scope, name=name, since=since, usd=usd, hard=hard, warn=warn, who=who, at=at)
    except ValueError as error:
        remedy = "write dollars such as 12000 or 12,000.50, and whole percents such as 50,80,100"
        raise InvalidInputError.single(str(error)[:300], field="budget", remedy=remedy) from None


def _csv(standings: tuple[BudgetStatus, ...], basis: str) -> str:
    """Return the bytes of `budget check -o csv`."""
    text = io.StringIO(newline="")
    rows = [
        {**record, "passed": ",".join(map(str, each.passed))}
        for each in standings
        for record in (budget_record(each, basis),)
    ]
    names = list(rows[0]) if rows else ["scope", "name"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: escape_formula(v) if isinstance(v, str) else v for name, v in row.items()})
    return text.getvalue()
