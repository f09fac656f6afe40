"""Quotes in the API: ask for one, read those that were made, accept one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from router.app.queries.quote_questions import MAX_DOCUMENT, MAX_LIMITS, QuoteQuestion, parse_amount
from router.app.queries.quotes import MOST_LISTED, find_quote, list_quotes, parse_before
from router.app.stored_quotes import quotes_content
from router.config.plan_files import QuoteAcceptance, StoredQuote
from router.console.answers import JSON
from router.console.api.tasks import TaskAnswer, accepted_task
from router.console.error_answers import answer_error
from router.console.site import ConsoleSite
from router.console.task_kinds import submit_acceptance, submit_question
from router.quotes.quote_json import quote_to_json


class QuoteAsked(BaseModel):
    """A quote to make: of a job document, of the job of an earlier quote, or of a job that is known by its name."""

    model_config = ConfigDict(extra="forbid")

    document: str = Field(
        default="", max_length=MAX_DOCUMENT, description="One job, as YAML or JSON text. It may name no file or secret."
    )
    again: str = Field(default="", max_length=100, description="Id of a quote whose job is quoted again.")
    job: str = Field(default="", max_length=100, description="Name of a job that was quoted or planned before.")
    by: str = Field(default="", max_length=40, description="2026-11-25T09:00Z or +36h; else the job's own deadline.")
    budget: str = Field(default="", max_length=40, description="Dollars: ask how many steps they pay for.")
    limits: Annotated[str, Field(max_length=MAX_LIMITS)] | dict[str, Any] | None = Field(
        default=None, description="A limits file as YAML or JSON text, or the same as JSON. It may name no file."
    )
    limits_of: Literal["last", "none", "quote"] | None = Field(
        default=None,
        description="Where no `limits` are given: those of the last plan (by default), of the quote `again`, or none.",
    )

    def question(self) -> QuoteQuestion:
        """Return the question that it asks."""
        written = json.dumps(self.limits, ensure_ascii=False) if isinstance(self.limits, dict) else self.limits or ""
        job_and_end = self.model_dump(exclude={"limits", "limits_of"})
        return QuoteQuestion(**job_and_end, limits=written, limits_of=self.limits_of or "")


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
        return accepted_task(submit_question(site.asked_by(request), body.question()))

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
