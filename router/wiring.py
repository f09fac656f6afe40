"""The composition root: reads what a plan is made from and hands the pure core one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pricing.book import PriceBook
from pricing.bookfile import embedded_book, read_book
from pricing.problems import InvalidInputError
from router.files.book_check import check_against_book
from router.files.job_files import load_jobs
from router.files.limits_file import read_limits
from router.jobs.limits import Limits
from router.planning.planner import PlanRequest

LATEST = "latest"
EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The knobs of a plan, as on the command line; ``max_age`` None takes prices of any age."""

    horizon: timedelta = timedelta(hours=24)
    slot: timedelta = timedelta(hours=1)
    gap: float = 0.005
    time_limit: timedelta = timedelta(seconds=60)
    solver: str = "highs"
    advisory: bool = False
    max_age: timedelta | None = None


def load_book(name: str) -> PriceBook:
    """``latest`` (the last one fetched, else the embedded one), ``embedded``, or a .parquet or .csv file.

    Nothing fetches books yet, so ``latest`` is the embedded one. InvalidInputError for a file that is no book.
    """
    return embedded_book() if name in {LATEST, EMBEDDED} else read_book(Path(name))


def plan_request(
    paths: Sequence[str], book_name: str, limits_file: Path | None, now: datetime, options: PlanOptions
) -> tuple[PlanRequest, int]:
    """The request, and how many offers ``max_age`` left out. InvalidInputError with every problem of every input."""
    book = load_book(book_name)
    limits = read_limits(limits_file) if limits_file is not None else Limits.none()
    loaded = load_jobs(paths, now)
    check_against_book(loaded, book)
    young = book.offers
    if options.max_age is not None:
        young = tuple(o for o in book.offers if o.as_of is not None and now.date() - o.as_of <= options.max_age)
        if not young:
            raise InvalidInputError.single(
                f"every price of the book is older than {options.max_age.days} days or undated",
                field="--max-age", remedy="raise it, or fetch a newer book",
            )  # fmt: skip
    request = PlanRequest(
        jobs=loaded.jobs,
        book=book if len(young) == len(book.offers) else book.with_offers(young),
        limits=limits,
        now=now,
        horizon=options.horizon,
        slot=options.slot,
        gap=options.gap,
        time_limit=options.time_limit,
        solver=options.solver,
        advisory=options.advisory,
    )
    return request, len(book.offers) - len(young)
