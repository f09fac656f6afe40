"""Write the page of an estimate: the cheapest gang in a sentence, the costs of all as a picture, figures in tables."""

from __future__ import annotations

import math
from datetime import datetime

from pricing.money import Usd
from router.planning.document.plan_usage import COST_TERMS
from router.planning.estimate.gang_estimates import GangAnswer, JobEstimate, Span, UsdSpan
from router.render.cost_terms_text import TERM_HEADINGS
from router.render.drawing import in_widths
from router.render.estimate_plot import PLOTS, draw_estimate, plot_unit
from router.render.estimate_text import (
    largest_text,
    layout_text,
    machines_text,
    number,
    refusal_text,
    short_memory,
    speed_text,
)
from router.render.figures import MARKET_WORDS
from router.render.pages import fill_template
from router.render.tables import format_step_price

_KEPT_HYPHEN = "\u2011"  # no line ends at it


def estimate_page(estimate: JobEstimate, now: datetime) -> str:
    """Return the page as HTML; the same estimate gives the same bytes."""
    decimals = _decimals(estimate)
    answers = [(row, row.answer) for row in estimate.rows if row.answer is not None]

    def term(answer: GangAnswer, name: str) -> str:
        return _term(getattr(answer.step_terms, name), decimals)

    used = [name for name in COST_TERMS if any(term(answer, name) != "0" for _, answer in answers)]
    return fill_template(
        "estimate.html",
        estimate=estimate,
        now=now,
        answered=[row for row, _ in answers],
        refused=[row for row in estimate.rows if row.answer is None],
        unit=plot_unit(estimate),
        terms=[(name, TERM_HEADINGS[name].capitalize()) for name in used],
        term=term,
        drawings=in_widths(lambda layout: draw_estimate(estimate, layout), PLOTS),
        usd=lambda amount: f"${format_step_price(amount)}",
        usd_range=usd_range,
        number=number,
        number_range=number_range,
        market=lambda row: MARKET_WORDS[row.market.value].replace("-", _KEPT_HYPHEN),
        machines=machines_text,
        layout_words=layout_text,
        largest=largest_text,
        memory=short_memory,
        speed=speed_text,
        reason=refusal_text,
    )


def usd_range(span: UsdSpan) -> str:
    """Return the interval of an amount, such as ``$0.133 to $0.218``."""
    if span.high is None:
        return f"from ${format_step_price(span.low)}, no upper bound"
    return f"${format_step_price(span.low)} to ${format_step_price(span.high)}"


def number_range(span: Span) -> str:
    """Return the interval of a figure, such as ``50.9 to 83.7``."""
    return f"{number(span.low)} to {'no bound' if span.high is None else number(span.high)}"


def _decimals(estimate: JobEstimate) -> int:
    """Return the decimals that show the cheapest step to a thousandth of its cost."""
    if estimate.best is None or estimate.best.answer is None:
        return 2
    dollars = estimate.best.answer.usd_per_step.expected.dollars()
    return 2 if dollars <= 0 else min(9, max(2, 3 - math.floor(math.log10(dollars))))


def _term(amount: Usd, decimals: int) -> str:
    """Return the term of a step's cost; one that is too small for the decimals is said to be below the last."""
    if amount.nanos == 0:
        return "0"
    least = 10.0**-decimals
    dollars = amount.dollars()
    return f"{dollars:,.{decimals}f}" if dollars >= least / 2 else f"<{least:.{decimals}f}"
