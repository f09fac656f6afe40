"""Find the limits that a quote is asked for under: of the last plan, of another quote, none, or what somebody wrote."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import PydanticSerializationError

from pricing.book import PriceBook
from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.queries.plan_making import limit_references
from router.config.book_check import check_limits_against_book
from router.config.job_files import parse_limits
from router.config.plan_files import StoredQuote
from router.controller.plans import find_limits, made_limits
from router.jobs.limits import Limits
from router.planning.document.restricted_limits import limits_text, restrict_limits
from router.quotes.quote import LimitsPlan

LAST, NONE, QUOTE = "last", "none", "quote"
SOURCES = (LAST, NONE, QUOTE)
MAX_LIMITS = 100_000


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """The limits of a question, and the plan that they are of; None where they are of none."""

    limits: Limits
    plan: LimitsPlan | None = None


def find_limits_plan(context: QueryContext) -> LimitsPlan | None:
    """Return the plan whose limits quotes are made under by default: the last night's; None without any."""
    context.identity.require(Permission.MAKE_QUOTES)
    newest = context.store.made_plans.newest(1, name=context.night)
    return LimitsPlan(newest[0].digest, newest[0].as_of) if newest else None


def limits_of_last_plan(context: QueryContext, team: str) -> QuestionLimits:
    """Return what of the last plan's limits concerns a team; no limits where no plan was made."""
    plan = find_limits_plan(context)
    row = None if plan is None else context.store.made_plans.row(plan.digest)
    if plan is None or row is None:
        return QuestionLimits(Limits.none())
    limits = made_limits(context.store, plan.digest)
    return QuestionLimits(restrict_limits(limits, team, {part.team for part in row.teams}), plan)


def limits_of_quote(context: QueryContext, stored: StoredQuote) -> QuestionLimits:
    """Return the limits that a quote was made under. InvalidInputError where they are not stored in this state."""
    own = stored.quote.limits
    if own is None or own.empty:
        return QuestionLimits(Limits.none(), None if own is None else own.plan)
    found = find_limits(context.store, own.digest)
    if found is None:
        what = f"the limits that {stored.name} was made under are not in this state"
        raise InvalidInputError.single(what, field="limits", remedy="write them, or choose others")
    return QuestionLimits(found, own.plan)


def parse_own_limits(text: str, book: PriceBook) -> Limits:
    """Return limits that somebody wrote, checked against the book. InvalidInputError with every problem."""
    if len(text) > MAX_LIMITS:
        what = f"has {len(text):,} characters"
        raise InvalidInputError.single(what, field="limits", remedy=f"write at most {MAX_LIMITS:,}")
    if not text.strip():
        raise InvalidInputError.single("is empty", field="limits", remedy="write limits, or ask for none")
    try:
        text.encode()
        loaded = parse_limits(text)
        # Escapes may write characters that cannot be stored.
        limits_text(loaded.limits).encode()
    except (UnicodeEncodeError, PydanticSerializationError):
        what = "has characters that are no text"
        raise InvalidInputError.single(what, field="limits", remedy="write text") from None
    check_limits_against_book(loaded, book)
    problems = list(limit_references(loaded))
    if problems:
        raise InvalidInputError(problems)
    return loaded.limits
