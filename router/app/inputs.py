"""Read the inputs of plans and quotes: jobs, limits, offers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pricing.book import PriceBook
from pricing.offers import Offer
from pricing.problems import InvalidInputError, Problem
from router.config.book_check import check_against_book, check_limits_against_book
from router.config.job_files import LoadedJobs, load_jobs
from router.config.limits_file import LoadedLimits, load_limits
from router.jobs.limits import Limits


def load_inputs(
    paths: Sequence[str], limits_file: Path | None, now: datetime, book: PriceBook, *, own_deadlines: bool = True
) -> tuple[LoadedJobs, Limits]:
    """Return jobs and limits, checked against the book.

    InvalidInputError has every problem of both. Without ``own_deadlines`` the deadlines of the jobs do not count, and
    may have passed.
    """
    problems: list[Problem] = []
    jobs, limits = LoadedJobs((), ()), LoadedLimits(Limits.none(), None)
    try:
        if limits_file is not None:
            limits = load_limits(limits_file)
            check_limits_against_book(limits, book)
    except InvalidInputError as error:
        problems += error.problems
    try:
        jobs = load_jobs(paths, now, own_deadlines=own_deadlines)
        check_against_book(jobs, book)
    except InvalidInputError as error:
        problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    return jobs, limits.limits


def recent_offers(book: PriceBook, max_age: timedelta | None, now: datetime) -> tuple[Offer, ...]:
    """Return offers no older than that. InvalidInputError where none is left."""
    if max_age is None:
        return book.offers
    offers = tuple(o for o in book.offers if o.as_of is not None and now.date() - o.as_of <= max_age)
    if not offers:
        raise InvalidInputError.single(
            f"every price of the book is older than {max_age.days} days or undated",
            field="--max-age",
            remedy="raise it, or fetch a newer book",
        )
    return offers
