"""Draw the page of quotes: the answer in a sentence, what other deadlines cost, how sure it is, what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from router.config.plan_files import QuoteAcceptance
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
    QuoteView,
    cost_words,
    difference_of,
    driver_name,
    interval_of_runs,
    market_words,
    place_words,
    quotes_view,
    share_words,
)


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
            "most": _most,
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


def _most(view: QuoteView) -> str:
    return cost_words(most_shown(view.alternatives))
