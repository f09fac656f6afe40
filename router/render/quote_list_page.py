"""Draw the list of quotes, as a page and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from pricing.money import Usd
from router.config.plan_files import StoredQuote
from router.files.csv_text import csv_text
from router.render.page_frame import PageFrame
from router.render.pages import fill_template

_COLUMNS = (
    "quote_id",
    "job",
    "team",
    "asked_at",
    "asked_by",
    "deadline",
    "valid_until",
    "expected_usd",
    "p90_usd",
    "on_time",
    "accepted_at",
    "accepted_by",
    "ceiling_usd",
    "plan",
)


# Rows on the page of a job; the list has the rest.
MOST_ON_JOB_PAGE = 5


@dataclass(frozen=True, slots=True)
class QuoteListView:
    """The list as it is shown; ``next_url`` leads to more quotes, "" where there are none.

    ``is_damaged``: a stored quote cannot be read, so there are no rows.
    """

    rows: tuple[StoredQuote, ...]
    now: datetime
    job: str = ""
    next_url: str = ""
    may_ask: bool = False
    is_damaged: bool = False

    @property
    def accepted(self) -> int:
        """Return how many were accepted."""
        return sum(row.acceptance is not None for row in self.rows)

    @property
    def open(self) -> int:
        """Return how many can be accepted now."""
        return sum(row.acceptance is None and row.quote.valid_until >= self.now for row in self.rows)

    @property
    def accepted_usd(self) -> Usd:
        """Return the expected cost of the accepted ones that have an end."""
        accepted = (row.quote.usd.mean for row in self.rows if row.acceptance is not None)
        return Usd.total(usd for usd in accepted if usd is not None)


def job_quotes_view(quotes: Sequence[StoredQuote] | None, now: datetime, job: str) -> QuoteListView | None:
    """Return what the page of a job shows of its quotes; None if it has none.

    ``quotes`` is None if one of them cannot be read.
    """
    if quotes is None:
        return QuoteListView((), now, job, "/quotes", is_damaged=True)
    url = f"/quotes?{urlencode({'job': job})}" if len(quotes) > MOST_ON_JOB_PAGE else ""
    return QuoteListView(tuple(quotes[:MOST_ON_JOB_PAGE]), now, job, url) if quotes else None


def quote_list_page(view: QuoteListView, frame: PageFrame) -> str:
    """Return the list as HTML."""
    return fill_template("quotes_list.html", frame=frame, page=view)


def quote_list_csv(rows: Sequence[StoredQuote]) -> str:
    """Return the list as CSV; what has no end or is not known is empty."""
    lines = []
    for row in rows:
        q, made = row.quote, row.acceptance
        lines.append(
            [
                row.name,
                q.job,
                q.team,
                _stamp(q.asked_at),
                row.asked_by,
                _stamp(q.deadline),
                _stamp(q.valid_until),
                "" if q.usd.mean is None else str(q.usd.mean),
                "" if q.usd.p90 is None else str(q.usd.p90),
                repr(q.on_time),
                *(("", "", "", "") if made is None else (made.at, made.who, made.ceiling_usd, made.plan)),
            ]
        )
    return csv_text(_COLUMNS, lines)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
