"""Arrange the list of quotes for pages, and write it as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from pricing.money import Usd
from pricing.units import format_utc
from router.config.plan_files import StoredQuote
from router.render.record_table import RecordTable, TableColumn, attribute_columns

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
        return sum(row.acceptance is not None for row in self.rows)

    @property
    def open(self) -> int:
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


def _accepted(name: str, field: str) -> TableColumn[StoredQuote]:
    return TableColumn(name, lambda row: row.acceptance and getattr(row.acceptance, field))


_QUOTES: RecordTable[StoredQuote] = RecordTable(
    (
        TableColumn("quote_id", lambda row: row.name),
        *attribute_columns("job", "team", of="quote"),
        TableColumn("asked_at", lambda row: row.quote.asked_at, plain=format_utc),
        TableColumn("asked_by", lambda row: row.asked_by),
        TableColumn("deadline", lambda row: row.quote.deadline, plain=format_utc),
        TableColumn("valid_until", lambda row: row.quote.valid_until, plain=format_utc),
        TableColumn("expected_usd", lambda row: row.quote.usd.mean),
        TableColumn("p90_usd", lambda row: row.quote.usd.p90),
        TableColumn("on_time", lambda row: row.quote.on_time),
        _accepted("accepted_at", "at"),
        _accepted("accepted_by", "who"),
        _accepted("ceiling_usd", "ceiling_usd"),
        _accepted("plan", "plan"),
    )
)


def quote_list_csv(rows: Sequence[StoredQuote]) -> str:
    """Return the list as CSV; what has no end or is not known is empty."""
    return _QUOTES.csv(rows)
