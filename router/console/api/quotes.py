"""Quotes in the API: ask for one, read those that were made, accept one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from router.app.queries.quote_questions import QuoteAsked, parse_amount
from router.app.queries.quotes import MOST_LISTED, find_quote, list_quotes, parse_before
from router.app.stored_quotes import quotes_content
from router.config.plan_files import QuoteAcceptance, StoredQuote
from router.console.answers import JSON
from router.console.api.tasks import TaskAnswer, accepted_task
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.console.task_kinds import submit_acceptance, submit_question
from router.quotes.quote_json import quote_to_json


class AcceptanceAsked(BaseModel):
    """How much an accepted quote may cost, and whether it may start later than quoted."""

    model_config = ConfigDict(extra="forbid")

    ceiling_usd: str = Field(default="", max_length=40, description="Dollars; by default the quote's 9 of 10.")
    later: bool = Field(default=False, description="Accept it also where its plan starts later than quoted.")


@dataclass(frozen=True, slots=True)
class StoredAcceptance(QuoteAcceptance):
    """The acceptance of a quote."""

    plan: Annotated[str, Field(description="Digest of the plan.")]
    note: Annotated[str, Field(description="Why the plan expects another cost than the quote said of a plan.")] = ""


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the API."""
    router = APIRouter(prefix="/api/v1", tags=["quotes"])

    @router.get("/quotes", summary="List quotes, the latest first")
    def quotes(
        request: Request,
        job: Annotated[str, Query(max_length=100)] = "",
        before: Annotated[str, Query(max_length=40, description="`next` of the answer before.")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
    ) -> dict[str, Any]:
        rows = list_quotes(site.asked_by(request), job or None, parse_before(before), limit + 1)
        shown = rows[:limit]
        content = quotes_content(shown)
        for row, quote in zip(content["quotes"], shown, strict=True):
            row["links"] = links_of(quote)
        following = shown[-1].quote.asked_at.isoformat().replace("+00:00", "Z") if len(rows) > limit else None
        return {**content, "next": following}

    @router.post("/quotes", status_code=202, summary="Ask for a quote", response_model=TaskAnswer)
    def ask(request: Request, body: QuoteAsked) -> Response:
        return accepted_task(submit_question(site.asked_by(request), body))

    @router.get("/quotes/{name}", summary="Read a quote, as `stepfare quotes show -o json` prints it")
    def quote(request: Request, name: str) -> Response:
        stored = find_quote(site.asked_by(request), name)
        links = ", ".join(f'<{url}>; rel="{word}"' for word, url in links_of(stored).items())
        return Response(quote_to_json(stored.quote), media_type=JSON, headers={"Link": links})

    @router.get("/quotes/{name}/acceptance", summary="Read how a quote was accepted", response_model=StoredAcceptance)
    def acceptance(request: Request, name: str) -> Response:
        stored = find_quote(site.asked_by(request), name)
        made = stored.acceptance
        if made is None:
            return answer_error(request, 404, f"{stored.name} was not accepted", "POST to this URL accepts it")
        return JSONResponse(made.content)

    @router.post(
        "/quotes/{name}/acceptance", status_code=202, summary="Accept a quote: make its plan", response_model=TaskAnswer
    )
    def accept(
        request: Request, name: str, acceptance: Annotated[AcceptanceAsked | None, Body(title="Asked")] = None
    ) -> Response:
        acceptance = acceptance or AcceptanceAsked()
        ceiling = parse_amount(acceptance.ceiling_usd, "ceiling_usd") if acceptance.ceiling_usd else None
        return accepted_task(submit_acceptance(site.asked_by(request), name, ceiling, later=acceptance.later))

    return router


def links_of(stored: StoredQuote) -> dict[str, str]:
    """Return where a quote is, where it is shown, and where to POST to accept it while that is possible."""
    own = f"/api/v1/quotes/{stored.name}"
    links = {"self": own, "alternate": f"/quotes/{stored.name}"}
    return links if stored.acceptance is not None else {**links, "accept": f"{own}/acceptance"}
