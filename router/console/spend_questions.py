"""Read what a request asks about costs, and give its answer as it is kept: report, levels, budgets, months."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
)
from router.console.kept_answers import REFRESH_SECONDS, REST_SECONDS, KeptAnswer
from router.console.site import ConsoleSite
from router.ledger.month import Month
from router.render.spend_links import SpendLinks
from router.showback.report.query import CostBasis
from router.showback.shared_costs import SharingMethod
from router.state.errors import StateError

if TYPE_CHECKING:
    from starlette.requests import Request

# Fixed shares need a list of groups, which only the command line takes.
METHODS = tuple(each.value for each in SharingMethod if each is not SharingMethod.FIXED)
BASES = tuple(each.value for each in CostBasis)
_LONGEST = 200


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
    found = await site.costs.get(("months", teams), lambda: site.cost_work.ask(costed_months, teams))
    months: tuple[Month, ...] = found.value
    return months


async def newest_month(site: ConsoleSite, teams: frozenset[str] | None) -> Month:
    """Return the newest month with costs; the current one where there is none."""
    months = await known_months(site, teams)
    return months[0] if months else Month.of(site.context.clock())


async def kept_month(site: ConsoleSite, question: SpendQuestion) -> KeptAnswer:
    """Return the report and the lines of a month (:class:`router.app.showback.MonthAnswer`), made once for all.

    A budget that was set a moment ago is in it, whichever server was told.
    """
    settings = await site.recent.get("budgets version", site.context.store.overview.budgets_version)
    return await site.costs.get((question, settings), lambda: site.cost_work.ask(month_answer, question))


async def kept_budgets(site: ConsoleSite, question: SpendQuestion) -> KeptAnswer:
    """Return the moment and the budgets of a month, made once for all.

    What was set a moment ago is in them, whichever server was told.
    """
    settings = await site.recent.get("budgets version", site.context.store.overview.budgets_version)

    def make() -> object:
        now = site.context.clock()
        return now, site.cost_work.ask(budget_progress, question.at(now))

    return await site.costs.get(("budgets", question, settings), make)


@contextmanager
def keep_costs_current(site: ConsoleSite) -> Iterator[None]:
    """Make the report of the newest month, and make again what was last asked for as the books change.

    This happens in a thread while the block runs, so that readers do not wait for the ledger to be read.
    """
    ended = threading.Event()
    site.recent.share()
    site.cost_work.start()
    site.costs.rest_seconds = REST_SECONDS

    def run() -> None:
        months: tuple[Month, ...] = _begin_months(site).result().value
        month = months[0] if months else Month.of(site.context.clock())
        question, settings = SpendQuestion(month=month), site.context.store.overview.budgets_version()
        site.costs.begin((question, settings), lambda: site.cost_work.ask(month_answer, question))
        while not ended.wait(REFRESH_SECONDS):
            with suppress(StateError, InvalidInputError, OSError):  # a reader who asks then hears of it
                site.costs.refresh()

    def start() -> None:
        # RuntimeError: the server ends, and nothing more is made.
        with suppress(StateError, InvalidInputError, OSError, CancelledError, RuntimeError):
            run()

    thread = threading.Thread(target=start, name="costs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        site.cost_work.close()
        site.costs.close()
        thread.join()


def _begin_months(site: ConsoleSite) -> Future[KeptAnswer]:
    return site.costs.begin(("months", None), lambda: site.cost_work.ask(costed_months, None))
