"""Draw the page of quotes: the answer in a sentence, what other deadlines cost, how sure it is, what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from router.quotes.quote import Quote, Refused
from router.render.page_frame import PageFrame
from router.render.pages import fill_template
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
    driver_name,
    market_words,
    place_words,
    quotes_view,
    share_words,
)


def quotes_page(
    quotes: Sequence[tuple[str, Quote]], refused: Sequence[Refused] = (), frame: PageFrame | None = None
) -> str:
    """Return the page of quotes, each with its id, as HTML; the same quotes give the same bytes.

    ``refused`` are the jobs of the same command that could not be quoted: they are named with the reason.
    """
    return fill_template(
        "quote.html",
        frame=frame,
        page=quotes_view(quotes, refused),
        draw={
            "curve": lambda view: _drawings({name: draw_curve(view.quote, each) for name, each in CURVES.items()}),
            "spread": lambda view: _drawings({name: draw_spread(view, each) for name, each in SPREADS.items()}),
            "run": lambda view: _drawings({name: draw_run(view, each) for name, each in STRIPS.items()}),
            "alternative": lambda view, row: Markup(draw_alternative(row, most_shown(view.alternatives))),
            "share": lambda driver: Markup(draw_share(driver)),
            "most": _most,
            "cost": cost_words,
            "driver_name": driver_name,
            "market_words": market_words,
            "place_words": place_words,
            "share_words": share_words,
        },
    )


def _most(view: QuoteView) -> str:
    return cost_words(most_shown(view.alternatives))


def _drawings(found: dict[str, str]) -> dict[str, Markup] | None:
    """Return drawings by layout as markup; None where there is nothing to draw."""
    # Safe: every text in a drawing was escaped when it was drawn.
    return {name: Markup(svg) for name, svg in found.items()} if all(found.values()) else None
