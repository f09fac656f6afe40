"""Write the page of an estimate: the cheapest gang in a sentence, the costs of all as a picture, figures in tables."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from pricing.money import Usd
from router.planning.document.plan_usage import COST_TERMS
from router.planning.estimate.gang_estimates import GangAnswer, GangEstimate, JobEstimate, Span, UsdSpan
from router.render import drawing
from router.render.axes import RowLayout, Scale, tick_unit
from router.render.cost_terms_text import TERM_HEADINGS
from router.render.drawing import in_widths
from router.render.estimate_text import (
    dollars,
    largest_text,
    layout_text,
    machines_text,
    number,
    refusal_text,
    short_memory,
    speed_text,
)
from router.render.figures import MARKET_LETTERS, MARKET_WORDS, tick_in
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


_TOP, _AXIS = 8.0, 30.0
_TICKS: Final = 5

PLOTS = (
    RowLayout(1078, 150.0, 190.0, 30.0, dot=5.0),
    RowLayout(692, 130.0, 180.0, 30.0, dot=4.5),
    RowLayout(340, 0.0, 0.0, 44.0, above=True, dot=3.0),
)


def plot_unit(estimate: JobEstimate) -> str:
    """Return what the costs are of: a million tokens, or a step where the job has no tokens."""
    return "step" if estimate.tokens_per_step is None else "million tokens"


def draw_estimate(estimate: JobEstimate, layout: RowLayout) -> str:
    """Return the picture; empty where no gang has an answer."""
    rows = [
        (row, row.answer.usd_per_million_tokens or row.answer.usd_per_step)
        for row in estimate.rows
        if row.answer is not None
    ]
    if not rows:
        return ""
    left, right = layout.left_margin + 10, layout.width - layout.right_margin - 18
    most = max(_end(usd).dollars() for _, usd in rows)
    unit = tick_unit(most, _TICKS)
    scale = Scale(0.0, max(math.ceil(most / unit - 1e-9), 1) * unit, left, right)
    bottom = _TOP + layout.row * len(rows)
    parts = []
    for tick in scale.ticks(unit):
        x, first = scale.at(tick * unit), layout.above and tick == 0
        parts.append(drawing.line(x, _TOP, x, bottom, "g"))
        parts.append(drawing.text(0 if first else x, bottom + 16, tick_in(tick, unit, "USD"), "s" if first else "s m"))
    parts.append(drawing.line(left, bottom, right, bottom, "ax"))
    for index, (row, usd) in enumerate(rows):
        y = _TOP + layout.row * (index + (0.72 if layout.above else 0.5))
        parts.append(_interval(row, usd, scale, y, layout.dot))
        bold = "b" if index == 0 else ""
        words, amount = _gang_name(row), f"${dollars(usd)}"
        if layout.above:
            parts.append(drawing.text(0, y - 15, drawing.fit_text(words, 130), f"halo {bold}".strip()))
            parts.append(drawing.text(layout.width, y - 15, amount, f"e halo {bold}".strip()))
        else:
            parts.append(drawing.text(0, y + 4, drawing.fit_text(words, layout.left_margin), bold))
            parts.append(drawing.text(layout.width, y + 4, amount, f"e {bold}".strip()))
    name = f"Dollars a {plot_unit(estimate)} by gang, with intervals; the figures are in the table below"
    return drawing.picture(name, layout.width, bottom + _AXIS, parts)


def _end(usd: UsdSpan) -> Usd:
    """Return the end of the interval that is drawn: without an upper one, three times the expected amount."""
    return Usd(3 * usd.expected.nanos) if usd.high is None else usd.high


def _gang_name(row: GangEstimate) -> str:
    return f"{row.option} {MARKET_LETTERS[row.market.value]}"


def _interval(row: GangEstimate, usd: UsdSpan, scale: Scale, y: float, radius: float) -> str:
    """Return the interval as a bar with a dot at the expected amount; dashed where nothing bounds it."""
    start, at, end = (scale.at(amount.dollars()) for amount in (usd.low, usd.expected, _end(usd)))
    bar = drawing.rect(start, y - 3.5, max(end - start, 1.0), 7, "bar" if usd.high is not None else "out", rx=3.5)
    dot = drawing.dot(at, y, radius, "full")
    words = drawing.title(f"{_gang_name(row)}: ${dollars(usd)}")
    return drawing.element("g", f"{words}{bar}{dot}", cls=row.market.value, data_gang=_gang_name(row))
