"""The pages of quotes: the list, the form that asks for one, its progress, and the quote with its forms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlencode

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import UploadFile

from pricing.money import Usd
from pricing.problems import InvalidInputError, Problem
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.queries.quote_questions import (
    MAX_DOCUMENT,
    QuoteAsked,
    check_question,
    find_limits_plan,
    parse_amount,
)
from router.app.queries.quotes import find_quote, list_quotes, parse_before
from router.app.queries.tasks import find_task
from router.app.stored_quotes import NoSuchQuoteError
from router.config.plan_files import StoredQuote
from router.console.answers import CSV, HTML, CachedAnswer, fill_marks, lead_on
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.console.task_kinds import QUOTE, QUOTE_ACCEPTANCE, submit_acceptance, submit_question
from router.console.work import FIELD
from router.jobs.fields import RefusedError
from router.jobs.quantities import Moment, parse_time_ahead
from router.quotes.other_deadline import deadline_figure
from router.render.figures import day_clock, money
from router.render.pages import PageFrame, fill_template
from router.render.quote_form_page import (
    OWN,
    QuoteFormView,
    job_of_fields,
    problems_by_field,
    quote_form_page,
)
from router.render.quote_list_page import QuoteListView, quote_list_csv
from router.render.quote_page import AcceptanceRefusal, QuoteActions, quotes_page
from router.state.tasks import TaskRow, TaskState

HERE = "/quotes"
_PAGE = 50
_MAX_BODY = 4 * MAX_DOCUMENT
_MAX_FIELDS = 40
# No field of the form has this name.
NOT_TEXT = "a file that is no text"
_FIELDS = ("name", "team", "model", "steps", "tokens", "accelerators")


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/quotes")
    async def quotes(request: Request, job: str = "", before: str = "") -> Response:
        context, moment = site.asked_by(request), parse_before(before)
        seen = context.identity.require(Permission.READ_QUOTES)
        may_ask, query = context.identity.may(Permission.MAKE_QUOTES), {"job": job} if job else {}
        words = f"?{urlencode(query)}" if query else ""
        links = (("CSV", f"/quotes.csv{words}"), ("JSON", f"/api/v1/quotes{words}"))
        frame = site.frame(request, HERE, data_links=links)

        def draw() -> str:
            rows = list_quotes(context, job or None, moment, _PAGE + 1)
            shown = rows[:_PAGE]
            earlier = {**query, "before": shown[-1].quote.asked_at.isoformat()} if len(rows) > _PAGE else {}
            older = f"/quotes?{urlencode(earlier)}" if earlier else ""
            view = QuoteListView(shown, context.clock(), job, older, may_ask)
            return fill_template("quotes_list.html", frame=frame, page=view)

        key = ("quotes", id(site), seen, may_ask, job, moment, frame)
        return await site.recent.respond(request, key, draw)

    @router.get("/quotes.csv")
    def quotes_csv(request: Request, job: str = "", before: str = "") -> Response:
        rows = list_quotes(site.asked_by(request), job or None, parse_before(before), _PAGE * 4)
        return Response(quote_list_csv(rows), media_type=CSV)

    @router.get("/quotes/new")
    def form(request: Request, again: str = "", job: str = "", by: str = "") -> Response:
        return _new(site, request, again, job, by)

    @router.post("/quotes")
    async def ask(request: Request) -> Response:
        values = await _form_values(request)
        return await run_sync(_ask, site, request, values)

    @router.get("/quotes/tasks/{task_id}")
    def progress(request: Request, task_id: str) -> Response:
        return _progress(site, request, task_id)

    @router.get("/quotes/{name}")
    async def quote(request: Request, name: str, by: str = "", refused: str = "") -> Response:
        context = site.asked_by(request)
        stored = await run_sync(find_quote, context, name)
        refusal = await run_sync(_find_refusal, context, stored, refused) if refused else None
        return await _quote_answer(site, request, stored, by, refusal)

    @router.post("/quotes/{name}/acceptance")
    async def accept(request: Request, name: str) -> Response:
        values, context = await _form_values(request), site.asked_by(request)
        stored, ceiling = await run_sync(find_quote, context, name), values.get("ceiling", "")
        try:
            task = await run_sync(_accept, context, stored, ceiling, "later" in values)
        except InvalidInputError as error:
            words = tuple(each.sentence for each in error.problems if each.field.removeprefix("--") == "ceiling")
            if not words:
                raise
            refusal = AcceptanceRefusal("ceiling", ceiling, words)
            return await _quote_answer(site, request, stored, values.get("by", ""), refusal, 400)
        return lead_on(request, f"/quotes/tasks/{task.id}")

    return router


def _new(site: ConsoleSite, request: Request, again: str, job: str, by: str) -> Response:
    context = site.asked_by(request)
    context.identity.require(Permission.MAKE_QUOTES)
    stored = find_quote(context, again) if again else None
    values = {"job": job} if job else {}
    try:
        at = _moment_of(by, context.clock()) if by else _tomorrow_noon(context.clock())
    except InvalidInputError as error:
        return _form(site, request, values, stored, error.problems)
    return _form(site, request, {**values, "at": at.strftime("%Y-%m-%dT%H:%M")}, stored)


def _ask(site: ConsoleSite, request: Request, values: Mapping[str, str]) -> Response:
    context = site.asked_by(request)
    source, limits_of = values.get("source", "document"), values.get("limits_of", "")
    stored = find_quote(context, values.get("again", "")) if source == "again" else None
    document = ""
    if source == "fields":
        document = job_of_fields({name: values.get(name, "") for name in _FIELDS})
    elif source == "document":
        document = values.get("file") or values.get("document", "")
    question = QuoteAsked.model_construct(
        document=document,
        again="" if stored is None else stored.name,
        job=values.get("job", "").strip() if source == "job" else "",
        by=_with_zone(_deadline_of(values)),
        limits=values.get("limits", "").strip() and values["limits"] if limits_of == OWN else "",
        limits_of="" if limits_of == OWN else limits_of,
    )
    problems = list(_find_wrong_choices(values))
    said = {problem.field for problem in problems} | ({"job"} if NOT_TEXT in values else set())
    try:
        if not problems:
            return lead_on(request, f"/quotes/tasks/{submit_question(context, question).id}")
        # Everything that is wrong is said at once.
        check_question(context, question)
    except NoSuchQuoteError:
        raise
    except InvalidInputError as error:
        problems += (problem for problem in error.problems if problem.where or problem.field not in said)
    shown = {**values, "source": source, **({"document": document} if source == "document" else {})}
    return _form(site, request, shown, stored, problems)


def _deadline_of(values: Mapping[str, str]) -> str:
    """Return the deadline that is chosen; "" where it is the job's own, or a time from now that cannot be read.

    Programs may send one without a choice.
    """
    when = values.get("when", "")
    if when not in ("at", "within"):
        if when == OWN or values.get("by", ""):
            return "" if when == OWN else values["by"]
        when = "within" if values.get("within", "").strip() else "at"
    written = values.get(when, "")
    if when == "at" or not written.strip():
        return written
    try:
        return str(Moment(relative=parse_time_ahead(written)))
    except RefusedError:
        return ""


def _find_wrong_choices(values: Mapping[str, str]) -> Iterator[Problem]:
    """Yield problems of fields that do not fit what is chosen beside them."""
    if NOT_TEXT in values:
        yield Problem("", values[NOT_TEXT], "is not UTF-8 text", "save it as UTF-8")
    when = values.get("when", "")
    if when in ("at", "within") and not values.get(when, "").strip():
        yield Problem("", "by", "is empty", "write one, or choose the job’s own deadline")
    elif when == "within" or (not when and not values.get("by", "")):
        try:
            parse_time_ahead(values.get("within", "").strip() or "0")
        except RefusedError as error:
            yield Problem("", "by", error.what, error.remedy)
    is_own, is_written = values.get("limits_of", "") == OWN, bool(values.get("limits", "").strip())
    if is_own and not is_written:
        yield Problem("", "limits", "is empty", "write limits, or choose none")
    if is_written and not is_own:
        yield Problem("", "limits", "are written, and others are chosen", "choose these, or empty the text")


def _accept(context: QueryContext, stored: StoredQuote, ceiling: str, later: bool) -> TaskRow:
    # Who may not accept it hears that, and not what is wrong with the ceiling.
    context.identity.require(Permission.ACCEPT_QUOTES, stored.quote.team or None)
    amount = parse_amount(ceiling, "ceiling") if ceiling.strip() else None
    return submit_acceptance(context, stored.name, amount, later=later)


def _find_refusal(context: QueryContext, stored: StoredQuote, task_id: str) -> AcceptanceRefusal | None:
    """Return why an acceptance of this quote made no plan, where a field can change that; None for any other work."""
    task = find_task(context, task_id)
    field = "" if task is None else _refused_field(task)
    if task is None or not field:
        return None
    request = json.loads(task.request)
    return AcceptanceRefusal(field, request["ceiling"], (task.message,)) if request["quote"] == stored.name else None


def _refused_field(task: TaskRow) -> str:
    """Return the field of the form beside which the failure of an acceptance belongs; "" for none."""
    if task.kind != QUOTE_ACCEPTANCE or task.state is not TaskState.FAILED or task.result is None:
        return ""
    return str(json.loads(task.result).get(FIELD, ""))


def _progress(site: ConsoleSite, request: Request, task_id: str) -> Response:
    context = site.asked_by(request)
    task = find_task(context, task_id)
    if task is None or task.kind not in (QUOTE, QUOTE_ACCEPTANCE):
        return answer_error(request, 404, "no such work on a quote")
    target = _result_url(task)
    if target and request.headers.get("HX-Request"):
        return Response(status_code=204, headers={"HX-Trigger": json.dumps({"stepfareDone": {"url": target}})})
    if target:
        return RedirectResponse(target, 303)
    text = _draw_progress(task, site.frame(request, HERE))
    return Response(fill_marks(text.encode(), request), media_type=HTML)


async def _quote_answer(
    site: ConsoleSite,
    request: Request,
    stored: StoredQuote,
    by: str,
    refusal: AcceptanceRefusal | None = None,
    status: int = 200,
) -> Response:
    """Return the page of a quote; ``refusal`` is a ceiling under which it was not accepted."""
    context, quote = site.asked_by(request), stored.quote
    now = context.clock()
    deadline, wrong = _tomorrow_noon(now), tuple[str, ...]()
    try:
        deadline = _moment_of(by, now) if by else deadline
    except InvalidInputError as error:
        wrong = tuple(each.sentence for each in error.problems)
    identity, team = context.identity, quote.team or None
    actions = QuoteActions(
        deadline,
        deadline_figure(quote, deadline),
        identity.may(Permission.MAKE_QUOTES, team),
        identity.may(Permission.ACCEPT_QUOTES, team),
        now > quote.valid_until,
        stored.acceptance,
        refusal,
        wrong,
        is_chosen=bool(by) and not wrong,
    )
    frame = site.frame(request, HERE, data_links=(("JSON", f"/api/v1/quotes/{stored.name}"),))

    def make() -> CachedAnswer:
        return CachedAnswer.of(quotes_page([(stored.name, quote)], frame=frame, actions=actions), HTML, status)

    if actions.problems:
        return (await run_sync(make)).response(request)
    return (await site.answers.get(("quote", stored.name, actions, frame), make)).response(request)


def _form(
    site: ConsoleSite,
    request: Request,
    values: Mapping[str, str],
    again: StoredQuote | None,
    problems: Sequence[Problem] = (),
) -> Response:
    context = site.asked_by(request)
    recent = list_quotes(context, count=_PAGE) if context.identity.may(Permission.READ_QUOTES) else ()
    teams = context.identity.teams(Permission.MAKE_QUOTES).teams
    view = QuoteFormView(
        _tomorrow_noon(context.clock()).strftime("%Y-%m-%dT%H:%M"),
        context.clock(),
        values,
        problems_by_field(problems, values),
        tuple(sorted({row.quote.job for row in recent})),
        tuple(sorted(teams if teams is not None else {row.quote.team for row in recent} - {""})),
        "" if again is None else again.name,
        "" if again is None else again.quote.job,
        find_limits_plan(context) if context.identity.may(Permission.MAKE_QUOTES) else None,
    )
    frame: PageFrame = site.frame(request, HERE)
    # As other pages: what was written is there again for whoever comes back from the quote.
    headers = {"Cache-Control": "private, no-cache"}
    text = fill_marks(quote_form_page(view, frame).encode(), request)
    return Response(text, 400 if problems else 200, headers, HTML)


def _draw_progress(task: TaskRow, frame: PageFrame) -> str:
    """Return the page of the work on a quote as HTML; it shows itself again until the work has ended."""
    result = json.loads(task.result) if task.result else {}
    refused = next(iter(result.get("answers", {}).get("refused", ())), None)
    request = json.loads(task.request)
    about = f"Quote for team {task.team}" if task.kind == QUOTE else f"Acceptance of {request['quote']}"
    remedy = "" if refused is None else _remedy_words(refused)
    return fill_template("quote_progress.html", frame=frame, task=task, title=about, refused=refused, remedy=remedy)


def _remedy_words(refused: Mapping[str, object]) -> str:
    remedy = str(refused.get("remedy") or "").removesuffix(" with --by")
    if not refused.get("earliest"):
        return remedy
    at = day_clock(datetime.fromisoformat(str(refused["earliest"])))
    cost = f" for about {money(Usd.parse(str(refused['earliest_usd'])))}" if refused.get("earliest_usd") else ""
    return f"At the earliest it is done by {at} UTC{cost}: {remedy}"


def _result_url(task: TaskRow) -> str:
    """Return where the result of a task that has ended is shown; "" where the progress says all."""
    if _refused_field(task):
        return f"/quotes/{json.loads(task.request)['quote']}?refused={task.id}#accept"
    result = json.loads(task.result) if task.state is TaskState.DONE and task.result else {}
    if task.kind == QUOTE_ACCEPTANCE and result:
        return f"/plans/{result['plan']}?done=quote"
    return f"/quotes/{result['quote']}" if result.get("quote") else ""


async def _form_values(request: Request) -> dict[str, str]:
    """Return the fields of a form as text; of a file its text. A file that is none is named as ``NOT_TEXT``."""
    fields: dict[str, str] = {}
    async with request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_BODY) as form:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields[name] = value.replace("\r\n", "\n")
                continue
            try:
                fields[name] = (await value.read()).decode("utf-8-sig")
            except UnicodeDecodeError:
                fields[NOT_TEXT] = name
    return fields


def _with_zone(text: str) -> str:
    """Return a deadline as forms write it with its zone, which is UTC."""
    text = text.strip()
    return f"{text}Z" if len(text) in (16, 19) and "T" in text and not text.endswith("Z") else text


def _moment_of(text: str, now: datetime) -> datetime:
    try:
        return Moment.parse(_with_zone(text[:40])).at(now)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError.single(str(error), field="by") from None


def _tomorrow_noon(now: datetime) -> datetime:
    return (now + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
