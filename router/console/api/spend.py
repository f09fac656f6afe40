"""The API of costs: the report of a month, and its budgets, in the JSON that the command line publishes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from router.console.site import ConsoleSite
from router.console.spend_questions import SpendView, answer_file, kept_budgets, read_question
from router.render.showback_text import standing_table

_MonthName = Annotated[str, Query(description="A month such as 2026-11; without one, the newest with costs.")]
_Basis = Annotated[str, Query(description="effective (default) or billed.")]


class BudgetUseRow(BaseModel):
    """A budget of a month and its use; money in dollars with all digits, null is not known."""

    scope: str
    name: str
    usd: str
    hard: bool
    spent_usd: str
    running_usd: str | None
    percent: int | None
    used_share: str | None
    forecast_usd: str | None
    passed: list[int]
    over: bool
    will_be_over: bool
    basis: str
    currency: str


class BudgetUses(BaseModel):
    """The budgets of a month, as `stepfare budget check -o json` prints them."""

    schema_version: int = 1
    budgets: list[BudgetUseRow] = Field(default_factory=list)


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes of the API."""
    router = APIRouter(prefix="/api/v1", tags=["spend"])

    @router.get("/showback", summary="The costs of a month", response_class=Response)
    async def showback(
        request: Request,
        month: _MonthName = "",
        by: Annotated[str, Query(description="Names such as team, project, cloud, with commas.")] = "team",
        basis: _Basis = "effective",
        share_idle: Annotated[str, Query(description="none (default), weighted or even.")] = "none",
    ) -> Response:
        """Return the report of a month, as `stepfare showback -o json` prints it: see its published schema."""
        question = await read_question(site, request, month, SpendView(by, basis, share_idle))
        return await answer_file(site, request, question, "json")

    @router.get("/budgets", summary="The budgets of a month")
    async def budgets(request: Request, month: _MonthName = "", basis: _Basis = "effective") -> BudgetUses:
        """Return each budget in force with its use, as `stepfare budget check -o json` prints them."""
        question = await read_question(site, request, month, SpendView(basis=basis))
        _, found = (await kept_budgets(site, question)).value
        table = standing_table(found.standings, question.basis.value)
        return BudgetUses.model_validate({"budgets": table.records(found.standings)})

    return router
