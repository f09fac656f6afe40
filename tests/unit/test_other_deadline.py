"""Read the cost of another deadline off the curve of a quote."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pricing.money import Usd
from router.quotes.curve import deadline_figure
from router.quotes.quote import Quote
from tests.support.asked_quotes import a_quote
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job


@pytest.fixture(scope="module")
def quote() -> Quote:
    return a_quote(a_job(steps=900), 24, [NORTH, NORTH_SPOT, SOUTH])


def test_the_deadline_asked_for_has_the_quote_s_own_figures(quote: Quote) -> None:
    figure = deadline_figure(quote, quote.deadline)
    assert figure is not None
    assert figure.is_exact
    assert (figure.mean, figure.p90, figure.on_time) == (quote.usd.mean, quote.usd.p90, quote.on_time)


def test_between_two_points_it_lies_on_the_line_to_the_cent(quote: Quote) -> None:
    first, last = next((a, b) for a, b in zip(quote.curve, quote.curve[1:], strict=False) if a.mean and b.mean)
    known = [quote.deadline, *(p.deadline for p in (quote.hour_earlier, quote.hour_later) if p)]
    assert not any(first.deadline < at < last.deadline for at in known), "choose another pair"
    figure = deadline_figure(quote, first.deadline + (last.deadline - first.deadline) / 4)
    assert figure is not None
    assert first.mean is not None
    assert last.mean is not None
    exact = (3 * first.mean.nanos + last.mean.nanos) / 4
    assert figure.mean is not None
    assert figure.mean.nanos % 10**7 == 0
    assert abs(figure.mean.nanos - exact) <= 10**7 / 2
    assert not figure.is_exact


def test_after_the_last_point_it_costs_at_most_that_and_before_the_first_nothing_is_known(quote: Quote) -> None:
    assert quote.hour_later is not None
    last = max((*quote.curve, quote.hour_later), key=lambda p: p.deadline)
    later = deadline_figure(quote, last.deadline + timedelta(days=30))
    assert later is not None
    assert (later.after, later.mean) == (None, last.mean)
    assert deadline_figure(quote, quote.start) is None


def test_an_end_without_a_cost_gives_no_figure_between(quote: Quote) -> None:
    from dataclasses import replace

    first, last = quote.curve[0], quote.curve[1]
    endless = replace(quote, curve=(replace(first, mean=None), last))
    figure = deadline_figure(endless, first.deadline + timedelta(seconds=1))
    assert figure is not None
    assert figure.mean is None
    assert isinstance(figure.p90, Usd)
