"""Draw the page of quotes: the answer in a sentence, other deadlines, how sure it is; arrange the list of quotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from markupsafe import Markup

from pricing.money import Usd
from pricing.units import format_utc
from router.config.plan_files import QuoteAcceptance, StoredQuote
from router.quotes.other_deadline import DeadlineFigure
from router.quotes.quote import Quote, Refused
from router.render.drawing import in_widths
from router.render.figures import chance, day_clock, hours, money
from router.render.pages import PageFrame, fill_template
from router.render.quote_pictures import (
    CURVES,
    SPREADS,
    STRIPS,
    draw_alternative,
    draw_curve,
    draw_run,
    draw_share,
    draw_spread,
    most_shown,
)
from router.render.quote_view import (
    cost_words,
    difference_of,
    driver_name,
    interval_of_runs,
    market_words,
    place_words,
    quotes_view,
    share_words,
)
from router.render.record_table import RecordTable, TableColumn, attribute_columns


@dataclass(frozen=True, slots=True)
class AcceptanceRefusal:
    """Why a quote was not accepted, in sentences that belong beside a ``field``; the ceiling as it was written."""

    field: str
    written: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuoteActions:
    """The forms on the page of one quote: another deadline, and to accept it.

    ``figure`` is what ``deadline`` costs by the quote's curve, None before its earliest point. ``is_stale``: the quote
    is too old to be accepted. ``refusal``: of the acceptance just asked for. ``wrong_deadline`` has sentences on a
    deadline that cannot be read; ``is_chosen``: somebody chose ``deadline``.
    """

    deadline: datetime
    figure: DeadlineFigure | None
    may_ask: bool
    may_accept: bool
    is_stale: bool
    acceptance: QuoteAcceptance | None
    refusal: AcceptanceRefusal | None = None
    wrong_deadline: tuple[str, ...] = ()
    is_chosen: bool = False

    @property
    def problems(self) -> Mapping[str, tuple[str, ...]]:
        refused = {} if self.refusal is None else {self.refusal.field: self.refusal.problems}
        return {name: words for name, words in {**refused, "by": self.wrong_deadline}.items() if words}

    @property
    def price(self) -> str:
        """Return the expected cost of the other deadline in words; ``~`` where it was not simulated itself."""
        if self.figure is None:
            return "not possible"
        if self.figure.mean is None:
            return "not known"
        mark = "" if self.figure.is_exact else "~"
        return f"{'at most ' if self.is_beyond else ''}{mark}{money(self.figure.mean)}"

    @property
    def is_beyond(self) -> bool:
        return self.figure is not None and self.figure.after is None and not self.figure.is_exact

    def details(self, quote: Quote) -> str:
        """Return how sure the other deadline is, and from which points that is read."""
        figure = self.figure
        if figure is None:
            return f"the fastest place is done by {day_clock(quote.earliest)} at the earliest"
        mark = "" if figure.is_exact else "~"
        most = "" if figure.p90 is None else f"9 of 10 up to {mark}{money(figure.p90)}, "
        likely = chance(figure.on_time)
        known = f"{most}on time {likely if likely.startswith('>') else mark + likely}"
        if figure.is_exact:
            return f"{known}; simulated"
        if figure.after is None:
            return f"{known}; later than every simulated deadline, and more time never costs more"
        first, last = figure.before, figure.after
        return (
            f"{known}; on the line from {day_clock(first.deadline)} ({cost_words(first.mean)}) to "
            f"{day_clock(last.deadline)} ({cost_words(last.mean)})"
        )


def quotes_page(
    quotes: Sequence[tuple[str, Quote]],
    refused: Sequence[Refused] = (),
    frame: PageFrame | None = None,
    actions: QuoteActions | None = None,
) -> str:
    """Return the page of quotes, each with its id, as HTML; the same quotes give the same bytes.

    ``refused`` are the jobs of the same command that could not be quoted: they are named with the reason. The console
    gives a ``frame``, and ``actions`` for the page of one quote.
    """
    return fill_template(
        "quote.html",
        frame=frame,
        actions=actions,
        page=quotes_view(quotes, refused),
        draw={
            "curve": lambda view: in_widths(lambda layout: draw_curve(view.quote, layout), CURVES),
            "spread": lambda view: in_widths(lambda layout: draw_spread(view, layout), SPREADS),
            "run": lambda view: in_widths(lambda layout: draw_run(view, layout), STRIPS),
            "alternative": lambda view, row: Markup(draw_alternative(row, most_shown(view.alternatives))),
            "share": lambda driver: Markup(draw_share(driver)),
            "most": lambda view: cost_words(most_shown(view.alternatives)),
            "cost": cost_words,
            "driver_name": driver_name,
            "difference": difference_of,
            "hours": hours,
            "interval": interval_of_runs,
            "market_words": market_words,
            "place_words": place_words,
            "share_words": share_words,
        },
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
