"""Quotes: list and find them, confined to the teams that may be seen."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.stored_quotes import find_stored_quote, list_stored_quotes
from router.config.plan_files import StoredQuote

MOST_LISTED = 200
# Each quote takes milliseconds to read, and a job may be quoted every hour.
MOST_OF_JOB = 20
_MAX_MOMENT = 40


def list_quotes(
    context: QueryContext, job: str | None = None, before: datetime | None = None, count: int | None = None
) -> tuple[StoredQuote, ...]:
    """Return the stored quotes of that job (None is all), the latest first. InvalidInputError for a damaged one."""
    teams = context.identity.require(Permission.READ_QUOTES).teams
    return list_stored_quotes(
        quotes_folder_of(context), context.store, teams=teams, job=job, before=before, count=count
    )


def list_job_quotes(context: QueryContext, job: str, team: str) -> tuple[StoredQuote, ...]:
    """Return the latest quotes of a team's job, the last accepted one first; none if the reader may not see them.

    InvalidInputError for a damaged one.
    """
    if not context.identity.teams(Permission.READ_QUOTES).admits(team):
        return ()
    folder = quotes_folder_of(context)
    quotes = list_stored_quotes(folder, context.store, teams=(team,), job=job, count=MOST_OF_JOB)
    accepted = next((quote.name for quote in quotes if quote.acceptance is not None), "")
    return tuple(sorted(quotes, key=lambda quote: quote.name != accepted))


def find_quote(context: QueryContext, name: str) -> StoredQuote:
    """Return a quote by its id or the first digits of it.

    NoSuchQuoteError where there is none that may be seen; InvalidInputError where there are several.
    """
    teams = context.identity.require(Permission.READ_QUOTES).teams
    return find_stored_quote(quotes_folder_of(context), context.store, name, teams)


def parse_before(text: str) -> datetime | None:
    """Return the moment in the URL of a later page; "" is none. InvalidInputError for what is no moment."""
    if not text:
        return None
    try:
        # A plus sign of a URL is read as a space.
        moment = datetime.fromisoformat(text[:_MAX_MOMENT].replace(" ", "+")).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError.single("is no moment", field="before", remedy="follow the link of a list") from None
    return moment


def quotes_folder_of(context: QueryContext) -> Path:
    """Return the folder of the quotes that were asked for on the command line."""
    return context.settings.folder / "quotes"
