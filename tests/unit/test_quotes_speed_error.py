"""A speed that is estimated means the same to plans and quotes."""

from __future__ import annotations

import numpy as np
import pytest

from router.jobs.goodput import run_share
from router.quotes.runner import QuoteClock
from tests.support.asked_quotes import a_quote, asking, dollars
from tests.support.scenes import NORTH, NORTH_SPOT, a_job, plan_of


@pytest.mark.parametrize("error", [0.0, 0.1, 0.3])
def test_plan_and_quote_expect_the_same_of_a_speed_that_is_not_sure(error: float) -> None:
    job = a_job(steps=1000, relative_error=error, spot="never", deadline="+60h")
    plan, quote = plan_of([job], [NORTH]), a_quote(job, 60, [NORTH])
    assert dollars(quote.usd.mean) == pytest.approx(plan.cost_usd.dollars(), rel=0.01)
    assert dollars(quote.plan_usd) == pytest.approx(plan.cost_usd.dollars(), abs=0.01)


def test_a_quote_names_the_figure_of_the_plan_on_spot() -> None:
    job = a_job(steps=1000, relative_error=0.2, deadline="+60h")
    plan, quote = plan_of([job], [NORTH, NORTH_SPOT]), a_quote(job, 60, [NORTH, NORTH_SPOT])
    assert dollars(quote.plan_usd) == pytest.approx(plan.cost_usd.dollars(), abs=0.01)


def test_draws_of_the_error_have_its_mean_and_spread_in_each_hundred() -> None:
    ask = asking(a_job(steps=1000, relative_error=0.2, spot="never"), 60, [NORTH])
    slow = ask.stage(ask.venues, QuoteClock(3600, 60), 400).slow
    for part in np.split(slow, 4):
        assert part.mean() == pytest.approx(1, abs=0.01)
        assert part.std() == pytest.approx(0.2, rel=0.1)
    assert run_share(0.3, np.array([-5.0, 0.0, 1.0])).tolist() == pytest.approx([0.2, 1.0, 1.3])
