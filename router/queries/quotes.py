"""Quotes: list and find them, confined to the teams that may be seen."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from router.access.identity import Permission, TeamFilter
from router.app.stored_quotes import StoredQuote, find_stored_quote, list_stored_quotes
from router.queries.context import QueryContext

MOST_LISTED = 200


def list_quotes(
    context: QueryContext, job: str | None = None, before: datetime | None = None, count: int | None = None
) -> tuple[StoredQuote, ...]:
    """Return the stored quotes of that job (None is all), the latest first. InvalidInputError for a damaged one."""
    teams = _seen_teams(context.identity.require(Permission.READ_QUOTES))
    return list_stored_quotes(
        quotes_folder_of(context), context.store, teams=teams, job=job, before=before, count=count
    )


def find_quote(context: QueryContext, name: str) -> StoredQuote:
    """Return a quote by its id or the first digits of it.

    NoSuchQuoteError where there is none that may be seen; InvalidInputError where there are several.
    """
    teams = _seen_teams(context.identity.require(Permission.READ_QUOTES))
    return find_stored_quote(quotes_folder_of(context), context.store, name, teams)


def quotes_folder_of(context: QueryContext) -> Path:
    """Return the folder of the quotes that were asked for on the command line."""
    return context.settings.folder / "quotes"


def _seen_teams(teams: TeamFilter) -> Collection[str] | None:
    return teams.teams
