"""Quotes that were given, in the state and in files beside it: one list without repeats."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing.problems import InvalidInputError
from router.config.plan_files import (
    QuoteAcceptance,
    StoredQuote,
    quote_paths,
    read_acceptance,
    read_quote,
    store_acceptance,
)
from router.controller.plans import put_limits
from router.jobs.limits import Limits
from router.quotes.quote import Quote
from router.quotes.quote_json import quote_content, quote_from_json, quote_to_json

if TYPE_CHECKING:
    from router.state.quotes import QuoteRow
    from router.state.store import StateStore

LEAST_DIGITS = 4
_REMEDY = "`stepfare quotes list` shows them"


class NoSuchQuoteError(InvalidInputError):
    """No stored quote that may be seen has this name."""


def list_stored_quotes(
    folder: Path,
    store: StateStore | None,
    *,
    teams: Collection[str] | None = None,
    job: str | None = None,
    before: datetime | None = None,
    count: int | None = None,
) -> tuple[StoredQuote, ...]:
    """Return quotes of these teams (None is all) and that job, the latest first. InvalidInputError for a damaged one.

    ``before`` and ``count`` confine to those asked for before a moment, and to so many. ``store`` None: files alone.
    """
    rows = () if store is None else store.quotes.find(teams, job, before, count)
    found = {row.id: _from_row(row, folder) for row in rows}
    for path in quote_paths(folder):
        if path.stem in found:
            continue
        quote = _read_unchanged(path, path.stat().st_mtime_ns)
        fits = (teams is None or quote.team in teams) and job in (None, quote.job)
        if fits and (before is None or quote.asked_at < before):
            found[path.stem] = StoredQuote(path.stem, quote, read_acceptance(folder, path.stem))
    newest = sorted(found.values(), key=lambda stored: (stored.quote.asked_at, stored.name), reverse=True)
    return tuple(newest[:count])


def find_stored_quote(
    folder: Path, store: StateStore | None, name: str, teams: Collection[str] | None = None
) -> StoredQuote:
    """Find a quote of these teams by its id, or the first digits of it.

    NoSuchQuoteError where there is none, InvalidInputError where there are several.
    """
    digits = name.removeprefix("quote-")
    if len(digits) < LEAST_DIGITS:
        what = f"{name!r} is no id of a quote: that is quote- and {LEAST_DIGITS} or more of its digits"
        raise NoSuchQuoteError.single(what, remedy=_REMEDY)
    names = _names(folder, store, digits) if digits.isascii() and digits.isalnum() else ()
    found = [each for known in names if (each := _get(folder, store, known)) is not None]
    seen = [each for each in found if teams is None or each.quote.team in teams]
    if not seen:
        raise NoSuchQuoteError.single(f"{name!r} names no stored quote", remedy=_REMEDY)
    if len(seen) > 1:
        raise InvalidInputError.single(f"{name!r} names {len(seen)} quotes", remedy=_REMEDY)
    return seen[0]


def quotes_content(quotes: Sequence[StoredQuote]) -> dict[str, Any]:
    """Return quotes with their acceptances as plain data, in this order."""
    rows = [
        {**quote_content(q.quote), "accepted": q.acceptance.content if q.acceptance is not None else None}
        for q in quotes
    ]
    return {"quotes": rows}


def put_quote(store: StateStore, quote: Quote, document: str, asked_by: str, limits: Limits | None = None) -> str:
    """Store a quote in the state with its job as it was written and its limits, and return its id."""
    from router.state.quotes import QuoteRow

    if limits is not None:
        put_limits(store, limits)
    name: str = quote_content(quote)["quote_id"]
    store.quotes.put(QuoteRow(name, quote.job, quote.team, quote.asked_at, asked_by, quote_to_json(quote), document))
    return name


def put_acceptance(
    folder: Path, store: StateStore, stored: StoredQuote, acceptance: QuoteAcceptance, *, replaces: bool
) -> bool:
    """Store an acceptance wherever the quote lies.

    Return False where it was accepted before, unless the new one ``replaces`` that. Of two servers that accept a quote
    of the state at once, one is told so. OSError where a file cannot be written.
    """
    if stored.acceptance is not None and not replaces:
        return False
    is_accepted = store.quotes.accept(stored.name, json.dumps(acceptance.content, sort_keys=True), replaces=replaces)
    if stored.document is not None and not is_accepted:
        return False
    if (folder / f"{stored.name}.json").exists():
        store_acceptance(folder, acceptance)
    return True


def _names(folder: Path, store: StateStore | None, digits: str) -> tuple[str, ...]:
    files = {path.stem for path in quote_paths(folder) if path.stem.startswith(f"quote-{digits}")}
    rows = () if store is None else store.quotes.ids(f"quote-{digits}")
    return tuple(sorted({*files, *rows}))


def _get(folder: Path, store: StateStore | None, name: str) -> StoredQuote | None:
    row = None if store is None else store.quotes.get(name)
    if row is not None:
        return _from_row(row, folder)
    path = folder / f"{name}.json"
    return StoredQuote(name, read_quote(path), read_acceptance(folder, name)) if path.exists() else None


def _from_row(row: QuoteRow, folder: Path) -> StoredQuote:
    if row.acceptance is None:
        # The command line may have accepted it where the state could not be written.
        accepted = read_acceptance(folder, row.id)
    else:
        accepted = QuoteAcceptance(**json.loads(row.acceptance))
    return StoredQuote(row.id, quote_from_json(row.text, row.id), accepted, row.document, row.asked_by)


@lru_cache(maxsize=512)
def _read_unchanged(path: Path, _changed: int) -> Quote:
    """Return the quote in a file, read once while the file stays as it is."""
    return read_quote(path)
