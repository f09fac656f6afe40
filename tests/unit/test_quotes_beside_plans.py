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
from router.spot.policies import QUOTED_RULE
from router.spot.policies.our_policy import QUOTED_DESCRIPTION, quoted_policy_for
from tests.support.asked_quotes import dollars
from tests.support.night import NOW

JOB = Job.model_validate(
    {
        "name": "a10g-job",
        "team": "research",
        "steps": 47_600,
        "deadline": "+60h",
        "workload": {"profile": {"accelerators": "A10G:8", "steps_per_hour": 1000}},
        "gang": {"accelerators": "A10G:8"},
        "checkpoint": {"size_gib": 20},
    }
)


def the_quote(job: Job, hours: float) -> Quote:
    book, limits = load_book("embedded"), Limits.none()
    finder = CandidateFinder(book, limits, NOW, advisory=False)
    runs = default_run_policy(QUOTED_RULE)
    market_inputs = MarketInputs(finder, book, limits, NOW, lambda _: {}, quoted_policy_for, QUOTED_DESCRIPTION, runs)
    quote = make_quote(QuoteRequest(job, NOW + timedelta(hours=hours)), market_inputs)
    assert isinstance(quote, Quote)
    return quote


@pytest.mark.slow
def test_a_quote_shows_spot_where_a_plan_does_not_call_it_sure_enough() -> None:
    """A refused fallback may make the job late: a plan counts that, a quote says that it does not, at all deadlines."""
    changes = {
        "steps": 48_000,
        "workload": {"profile": {"accelerators": "T4:4", "steps_per_hour": 1000}},
        "gang": {"accelerators": "T4:4"},
        "residency": {"allow": ["azure"]},
        "checkpoint": {"size_gib": 100},
        "confidence": 0.99,
    }
    job = Job.model_validate({**JOB.model_dump(exclude_defaults=True, mode="json"), **changes})
    later, sooner = the_quote(job, 80), the_quote(job, 65)
    assert sooner.spot_share is not None
    assert sooner.spot_share > 0.5
    assert dollars(later.usd.mean) < dollars(sooner.usd.mean) < 0.5 * dollars(sooner.plan_usd)
    beside = [point for point in later.curve if abs(point.hours - 65.2) < 1]
    assert [dollars(point.mean) for point in beside] == [pytest.approx(dollars(sooner.usd.mean), rel=0.05)]


@pytest.mark.slow
def test_plan_and_quote_agree_where_there_is_one_place() -> None:
    quote = the_quote(JOB, 60)
    assert dollars(quote.plan_usd) == pytest.approx(366.58, abs=0.5)
    assert dollars(quote.usd.mean) == pytest.approx(284.14, abs=0.5)
    assert dollars(quote.place_usd) == pytest.approx(dollars(quote.plan_usd), rel=0.1)
    # The plan is less sure than the quote: only it counts refusals.
    refused = "on-demand machines can be had when they are needed; a plan takes them to be refused 2% of the times"
    assert refused in quote.conditions
