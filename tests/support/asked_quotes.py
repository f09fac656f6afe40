"""Quotes over the made-up book."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pricing.money import Usd
from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.find.candidates import CandidateFinder
from router.quotes.budget_quote import make_budget_quote
from router.quotes.make_quote import make_quote
from router.quotes.quote import BudgetQuote, Quote, Refused
from router.quotes.request import MarketInputs, QuoteProblem, QuoteRequest
from router.spot.availability.observed import PoolObservation
from router.spot.live.selection import default_run_policy
from router.spot.policies import QUOTED_RULE
from router.spot.policies.our_policy import QUOTED_DESCRIPTION, quoted_policy_for
from router.spot.venues import QuoteOption
from tests.support.made_up_book import book
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import NOW


def a_trade(
    offers: Sequence[Offer], limits: Any = None, seen: Mapping[str, PoolObservation] | None = None
) -> MarketInputs:
    """At ``NOW``; ``seen`` by pool."""
    known = make_limits(limits or {})
    finder = CandidateFinder(book(offers), known, NOW, advisory=False)

    def look(_: Sequence[QuoteOption]) -> Mapping[str, PoolObservation]:
        return seen or {}

    runs = default_run_policy(QUOTED_RULE)
    return MarketInputs(finder, book(offers), known, NOW, look, quoted_policy_for, QUOTED_DESCRIPTION, run_policy=runs)


def by(hours: float) -> datetime:
    """So long after ``NOW``."""
    return NOW + timedelta(hours=hours)


def asking(job: Job, hours: float, offers: Sequence[Offer], limits: Any = None) -> QuoteProblem:
    """What a quote begins with."""
    return QuoteProblem(QuoteRequest(job, by(hours)), a_trade(offers, limits))


def answer(job: Job, hours: float, offers: Sequence[Offer], limits: Any = None, **more: Any) -> Quote | Refused:
    """Of one job."""
    return make_quote(QuoteRequest(job, by(hours)), a_trade(offers, limits, **more))


def a_quote(job: Job, hours: float, offers: Sequence[Offer], limits: Any = None, **more: Any) -> Quote:
    """The same, where there must be one."""
    found = answer(job, hours, offers, limits, **more)
    assert isinstance(found, Quote), found
    return found


def refused(job: Job, hours: float, offers: Sequence[Offer], limits: Any = None) -> Refused:
    """The same, where there must be none."""
    found = answer(job, hours, offers, limits)
    assert isinstance(found, Refused)
    return found


def a_budget(job: Job, hours: float, usd: str, offers: Sequence[Offer]) -> BudgetQuote | Refused:
    """How far it goes."""
    return make_budget_quote(QuoteRequest(job, by(hours)), Usd.parse(usd), a_trade(offers))


def dollars(amount: Usd | None) -> float:
    """Of one that has an end."""
    assert amount is not None
    return amount.dollars()
