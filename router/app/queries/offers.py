"""Offers of a price book that pass filters, as the command and the API list them."""

from __future__ import annotations

from datetime import date

from pricing.book import PriceBook
from pricing.problems import InvalidInputError, Problem
from router.jobs.fields import suggest
from router.render.offers_text import OfferFilters, OfferSelection, OfferSortKey, select_offers, unknown_names


def list_offers(
    book: PriceBook, filters: OfferFilters, sort: OfferSortKey, today: date, rows: int, *, prefix: str = ""
) -> OfferSelection:
    """Return the offers that pass, cheapest first; ``rows`` 0 is all.

    InvalidInputError for names that the book does not know, which are probably mistyped; ``prefix`` stands before the
    names of fields.
    """
    problems = [
        Problem(
            "",
            f"{prefix}{option}",
            f"unknown {option.replace('-', ' ')} {value!r}",
            suggest(value, known) or "leave it out to see all of them",
        )
        for option, value, known in unknown_names(book, filters)
    ]
    if problems:
        raise InvalidInputError(problems)
    return select_offers(book, filters, sort, today, rows)
