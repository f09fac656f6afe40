"""The figures of interruption-risk.md: plan and quote of eight V100 due in 60 h agree on the one place there is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidates import CandidateFinder
from router.prices.books import load_book
from router.quotes.make_quote import make_quote
from router.quotes.quote import Quote
from router.quotes.request import MarketInputs, QuoteRequest
from router.spot.live.selection import default_run_policy
from router.spot.policies.our_policy import QUOTED_DESCRIPTION, quoted_policy_for
from router.spot.policies.rules import QUOTED_RULE
from tests.support.asked_quotes import dollars
from tests.support.night import NOW

JOB = Job.model_validate(
    {
        "name": "v100-job",
        "team": "research",
        "steps": 47_600,
        "deadline": "+60h",
        "workload": {"profile": {"accelerators": "V100-16GB:8", "steps_per_hour": 1000}},
        "gang": {"accelerators": "V100-16GB:8"},
        "checkpoint": {"size_gib": 20},
    }
)


def test_plan_and_quote_agree_where_there_is_one_place() -> None:
    book, limits = load_book("embedded"), Limits.none()
    finder = CandidateFinder(book, limits, NOW, advisory=False)
    runs = default_run_policy(QUOTED_RULE)
    market_inputs = MarketInputs(finder, book, limits, NOW, lambda _: {}, quoted_policy_for, QUOTED_DESCRIPTION, runs)
    quote = make_quote(QuoteRequest(JOB, NOW + timedelta(hours=60)), market_inputs)
    assert isinstance(quote, Quote)
    assert dollars(quote.plan_usd) == pytest.approx(755.75, abs=0.5)
    assert dollars(quote.usd.mean) == pytest.approx(715.45, abs=0.5)
    assert dollars(quote.place_usd) == pytest.approx(dollars(quote.plan_usd), rel=0.1)
    # The plan is less sure than the quote: only it counts refusals.
    refused = "on-demand machines can be had when they are needed; a plan takes them to be refused 2% of the times"
    assert refused in quote.conditions
