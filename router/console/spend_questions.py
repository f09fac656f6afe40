"""Read what a request asks about costs, and give its answer as it is kept: report, levels, budgets, months, files."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pricing.problems import InvalidInputError
from router.app.queries.budgets import budget_progress
from router.app.queries.spend import (
    FIRST_MONTH,
    LAST_MONTH,
    SpendQuestion,
    confine_question,
    costed_months,
    month_answer,
    seen_teams,
    spend_version,
)
from router.console.answers import CSV, JSON
from router.console.site import ConsoleSite
from router.ledger.entry import CostBasis
from router.ledger.month import Month
from router.render.spend_links import SpendLinks
from router.showback.report.export_json import report_to_json
from router.showback.report.export_tables import report_to_csv, report_to_workbook
from router.showback.report.values import ShowbackReport
from router.showback.shared_costs import SharingMethod
from router.state.errors import StateError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FILES: dict[str, tuple[str, Callable[[ShowbackReport], str | bytes]]] = {
    "csv": (CSV, report_to_csv),
    "json": (JSON, report_to_json),
    "xlsx": (XLSX, lambda report: report_to_workbook(report, report.made_at)),
}
# Fixed shares need a list of groups, which only the command line takes.
METHODS = tuple(each.value for each in SharingMethod if each is not SharingMethod.FIXED)
BASES = tuple(each.value for each in CostBasis)
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class CostAnswer:
    """An answer about costs, and the version of what it was made from."""

    value: Any
    version: Hashable


@dataclass(frozen=True, slots=True)
class SpendView:
    """A reader's choices for a month, as texts of the URL; "" is the default."""

    by: str = ""
    basis: str = ""
    share_idle: str = ""

    def links(self, month: Month) -> SpendLinks:
        """Return the URLs that keep what was chosen."""
        defaults = {"by": "team", "basis": CostBasis.EFFECTIVE.value, "share_idle": SharingMethod.NONE.value}
        chosen = {"by": self.by, "basis": self.basis, "share_idle": self.share_idle}
        return SpendLinks(
            str(month), tuple((name, value) for name, value in chosen.items() if value not in ("", defaults[name]))
        )


def read_month(text: str) -> Month:
    """Return the month of a text of the URL. InvalidInputError for anything else, and for months out of reach."""
    try:
        month = Month.parse(text)
    except ValueError:
        what = f"{text[:_LONGEST]!r} is no month such as 2026-11"
        raise InvalidInputError.single(what, field="month") from None
    if not FIRST_MONTH <= month <= LAST_MONTH:
        what = f"{month} is out of reach: from {FIRST_MONTH} to {LAST_MONTH}"
        raise InvalidInputError.single(what, field="month")
    return month


def read_basis(text: str) -> CostBasis:
    """Return the cost basis of a text of the URL. InvalidInputError for anything else."""
    if text not in ("", *BASES):
        raise InvalidInputError.single(f"{text[:_LONGEST]!r} is neither of {', '.join(BASES)}", field="basis")
    return CostBasis(text) if text else CostBasis.EFFECTIVE


async def read_question(site: ConsoleSite, request: Request, month: str, view: SpendView) -> SpendQuestion:
    """Return the question of a request, of what who asks may see; without a month, the newest with costs.

    AccessDeniedError; InvalidInputError.
    """
    context = site.asked_by(request)
    teams = seen_teams(context)
    if view.share_idle not in ("", *METHODS):
        what = f"{view.share_idle[:_LONGEST]!r} is none of {', '.join(METHODS)}"
        raise InvalidInputError.single(what, field="share_idle")
    basis = read_basis(view.basis)
    period = read_month(month) if month else await newest_month(site, teams)
    names = tuple(name.strip() for name in (view.by or "team").split(","))
    share = SharingMethod(view.share_idle or SharingMethod.NONE.value)
    try:
        question = SpendQuestion(month=period, by=names, basis=basis, share=share)
    except ValueError as error:
        raise InvalidInputError.single(str(error)[: 2 * _LONGEST], field="by") from None
    return confine_question(context, question)


async def known_months(site: ConsoleSite, teams: frozenset[str] | None) -> tuple[Month, ...]:
    """Return the months with costs, the newest first."""
    kept = await _kept(site, ("months", teams), lambda: site.cost_work.ask(costed_months, teams))
    months: tuple[Month, ...] = kept.value
    return months


async def newest_month(site: ConsoleSite, teams: frozenset[str] | None) -> Month:
    """Return the newest month with costs; the current one where there is none."""
    months = await known_months(site, teams)
    return months[0] if months else Month.of(site.context.clock())


async def kept_month(site: ConsoleSite, question: SpendQuestion) -> CostAnswer:
    """Return the report and the lines of a month (:class:`router.app.showback.MonthAnswer`), made once for all.

    A budget that was set a moment ago is in it, whichever server was told.
    """
    settings = await site.recent.get("budgets version", site.context.store.overview.budgets_version)
    return await _kept(site, (question, settings), lambda: site.cost_work.ask(month_answer, question))


async def kept_budgets(site: ConsoleSite, question: SpendQuestion) -> CostAnswer:
    """Return the moment and the budgets of a month, made once for all.

    What was set a moment ago is in them, whichever server was told.
    """
    settings = await site.recent.get("budgets version", site.context.store.overview.budgets_version)

    def make() -> object:
        now = site.context.clock()
        return now, site.cost_work.ask(budget_progress, question.at(now))

    return await _kept(site, ("budgets", question, settings), make)


async def answer_file(
    site: ConsoleSite,
    request: Request,
    question: SpendQuestion,
    ending: str,
    name: str = "showback",
    choose: Callable[[ShowbackReport], ShowbackReport] = lambda report: report,
) -> Response:
    """Answer with a report as a file, with the bytes that the command writes for the same query."""
    kept = await kept_month(site, question)
    media_type, write = FILES[ending]
    key = ("file", name, question, kept.version, ending)
    response = await site.answers.respond(request, key, lambda: write(choose(kept.value.report)), media_type)
    if ending != "json":
        response.headers["Content-Disposition"] = f'attachment; filename="{name}-{question.month}.{ending}"'
    return response


async def _kept(site: ConsoleSite, key: Hashable, make: Callable[[], Any]) -> CostAnswer:
    """Return the answer about costs; it is made again once its time is over and what it was made from has changed."""

    def make_again() -> CostAnswer:
        # The version is read first: what changes meanwhile makes the answer old, never wrong.
        version, last = spend_version(site.context, site.context.clock()), site.costs.last(key)
        if isinstance(last, CostAnswer) and last.version == version:
            return last
        return CostAnswer(make(), version)

    return await site.costs.get(key, make_again)


@contextmanager
def keep_costs_current(site: ConsoleSite) -> Iterator[None]:
    """Let answers serve for a moment and read the ledger in a child process while the block runs."""
    site.share_answers()
    with site.cost_work.in_child():
        yield


async def make_newest_month(site: ConsoleSite) -> None:
    """Make the report of the newest month before anybody asks, where answers serve for a moment."""
    if site.costs.fresh_seconds:
        with suppress(StateError, InvalidInputError, OSError):  # a reader who asks then hears of it
            await kept_month(site, SpendQuestion(month=await newest_month(site, None)))
