"""Write the page of an estimate: the cheapest gang in a sentence, the costs of all as a picture, figures in tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from pricing.money import Usd
from router.planning.document.plan_usage import COST_TERMS
from router.planning.estimate.gang_estimates import GangAnswer, GangEstimate, JobEstimate, Span, UsdSpan
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

TERM_HEADS = ("Compute", "Lost work", "Checkpoints", "Restarts", "Start-ups", "Moves", "Stream", "Idle", "Fallback")


_KEPT_HYPHEN = "\u2011"  # no line ends at it


@dataclass(frozen=True, slots=True)
class PageRow:
    """The words of one gang of the page; of one without an answer only name, reason and memory."""

    name: str
    market: str
    estimate: GangEstimate
    answer: GangAnswer | None
    machines: str
    layout: str
    largest: str
    memory: str
    terms: tuple[str, ...]
    speed: str
    reason: str


def estimate_page(estimate: JobEstimate, now: datetime) -> str:
    """Return the page as HTML; the same estimate gives the same bytes."""
    decimals = _decimals(estimate)
    rows = [_page_row(row, decimals) for row in estimate.rows]
    used = [at for at in range(len(COST_TERMS)) if any(row.terms and row.terms[at] != "0" for row in rows)]
    return fill_template(
        "estimate.html",
        estimate=estimate,
        now=now,
        answered=[row for row in rows if row.answer is not None],
        refused=[row for row in rows if row.answer is None],
        unit=plot_unit(estimate),
        term_heads=[TERM_HEADS[at] for at in used],
        used=used,
        drawings=in_widths(lambda layout: draw_estimate(estimate, layout), PLOTS),
        usd=lambda amount: f"${format_step_price(amount)}",
        usd_range=usd_range,
        number=number,
        number_range=number_range,
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


def _page_row(row: GangEstimate, decimals: int) -> PageRow:
    answer, found = row.answer, row.layout
    terms: tuple[str, ...] = ()
    if answer is not None:
        terms = tuple(_term(getattr(answer.step_terms, name), decimals) for name in COST_TERMS)
    return PageRow(
        name=str(row.option),
        market=MARKET_WORDS[row.market.value].replace("-", _KEPT_HYPHEN),
        estimate=row,
        answer=answer,
        machines="" if answer is None else machines_text(answer),
        layout="" if found is None else layout_text(found.layout),
        largest=largest_text(row),
        memory=short_memory(row),
        terms=terms,
        speed=speed_text(row),
        reason=refusal_text(row),
    )
