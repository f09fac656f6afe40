"""Quotes name the earlier runs that they count on, in their JSON and in a line of their text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.hazard import Hazard, HazardShape, deviation_of
from pricing.money import Usd
from pricing.risk_levels import DRIFT_DEVIATION
from router.jobs.experience import Experience, PoolRun, RunRecords, SpeedRun, job_signature, learn
from router.jobs.spec import Job
from router.planning.find.candidates import CandidateFinder
from router.quotes.budget_quote import make_budget_quote
from router.quotes.make_quote import make_quote
from router.quotes.quote import BudgetQuote, Quote
from router.quotes.quote_json import answers_to_json, quote_content, quote_from_json, quote_schema, quote_to_json
from router.quotes.request import MarketInputs, QuoteRequest
from router.render.quote_text import line, text
from tests.support.asked_quotes import a_trade, by
from tests.support.made_up_book import book
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, SOUTH, a_job

DAY = timedelta(days=1)
OFFERS = [NORTH, NORTH_SPOT, SOUTH]


def ran(shape_of: Job, name: str, nights_ago: int, **more: Any) -> SpeedRun:
    """One machine of eight that did 50 of the stated 100 steps an hour."""
    at = NOW - nights_ago * DAY
    shape = ("aws", "p9.48xlarge", "H100", 8, 1, None)
    return replace(SpeedRun(name, shape_of.name, job_signature(shape_of), *shape, 50.0, at), **more)


def stayed(name: str, nights_ago: int, region: str = "north-1") -> PoolRun:
    """Five hours on spot, in which the book expects half an interruption, with one at the end."""
    return PoolRun(name, "aws", region, None, "p9.48xlarge", "spot", 1, 5.0, True, NOW - nights_ago * DAY)


def learned_trade(job: Job, records: RunRecords) -> MarketInputs:
    market_inputs = a_trade(OFFERS)
    known = book(OFFERS)
    experience = learn(records, [job, a_job("another")], known, NOW)
    finder = CandidateFinder(known, market_inputs.limits, NOW, advisory=False, experience=experience)
    return replace(market_inputs, finder=finder)


def a_learned_quote(job: Job, records: RunRecords) -> Quote:
    found = make_quote(QuoteRequest(job, by(24)), learned_trade(job, records))
    assert isinstance(found, Quote)
    return found


JOB = a_job()
RECORDS = RunRecords(
    (ran(JOB, "a-1", 1), ran(JOB, "a-2", 4), ran(JOB, "b-1", 2, job="another")),
    (stayed("a-1", 1), stayed("a-2", 4), stayed("c-1", 1, "nowhere-9")),
)


@pytest.fixture(scope="module")
def quoted() -> Quote:
    return a_learned_quote(JOB, RECORDS)


def test_a_quote_names_source_nights_signature_points_and_factors(quoted: Quote) -> None:
    learned = quoted.learned
    assert learned is not None
    assert (learned.job_signature, learned.points) == (job_signature(JOB), 1)
    (speed,) = learned.speeds
    assert (speed.accelerators, speed.runs, speed.attempts) == (8, 2, ("a-1", "a-2"))
    assert (speed.first_at, speed.last_at) == (NOW - 4 * DAY, NOW - DAY)
    assert speed.factor == pytest.approx(speed.steps_per_hour / 100)
    assert 50 < speed.steps_per_hour < 52
    assert all(place.steps_per_hour == pytest.approx(speed.steps_per_hour, rel=0.05) for place in quoted.places)
    (rate,) = learned.rates  # of the pool that the job may use
    assert (rate.region, rate.market, rate.runs) == ("north-1", "spot", 2)
    weights = 2 ** (-1 / 7) + 2 ** (-4 / 7)
    assert rate.interruptions == pytest.approx(weights)
    assert rate.hours == pytest.approx(5 * weights)


@pytest.mark.slow
def test_the_factor_of_a_pool_is_that_of_its_rate_by_book_and_records() -> None:
    """By hand: a lognormal of 0.05 to 0.45 that has seen both lives, over the first eight hours, hardware added."""
    weights = 2 ** (-1 / 7) + 2 ** (-4 / 7)
    assumed = Hazard.lognormal(HazardShape.FALLING, 0.15, deviation_of(0.05, 0.45))
    known = assumed.observed(weights, weights * math.log(5.6 / 0.6)).blurred(DRIFT_DEVIATION)
    before, after = (hazard.mean * math.log(8.6 / 0.6) / 8 + 8 / 30_000 for hazard in (assumed, known))
    alone = a_learned_quote(JOB, replace(RECORDS, pools=RECORDS.pools[:2])).learned
    with_neighbour = a_learned_quote(JOB, RECORDS).learned
    assert alone is not None
    assert with_neighbour is not None
    assert alone.rates[0].factor == pytest.approx(after / before, rel=0.02)
    # A pool of the same kind that the job may not use was interrupted too: that counts a little.
    assert 1.02 < with_neighbour.rates[0].factor / alone.rates[0].factor < 1.2
    calm = replace(RECORDS.pools[0], hours=400.0, interrupted=False)
    lived = a_learned_quote(JOB, replace(RECORDS, pools=(calm,))).learned
    assert lived is not None
    assert lived.rates[0].factor < 0.7


def test_the_rows_are_those_of_a_plan_of_the_job_alone(quoted: Quote) -> None:
    """Records of other places count as well: through them a pool's neighbours are known."""
    known = learn(RECORDS, [JOB], book(OFFERS), NOW)
    assert known is not None
    assert quoted.learned is not None
    assert quoted.learned.digest == known.digest
    again = a_learned_quote(JOB, RunRecords(RECORDS.speeds[:1], RECORDS.pools[:2]))
    assert again.learned is not None
    assert again.learned.digest != known.digest


def test_the_json_keeps_to_the_schema_and_reads_back(quoted: Quote) -> None:
    document = json.loads(answers_to_json([quoted]))
    Draft202012Validator(quote_schema()).validate(document)
    assert document["quotes"][0]["learned"]["speeds"][0]["last_at"] == "2026-11-20T18:00:00Z"
    assert quote_from_json(quote_to_json(quoted)) == quoted


def test_the_text_says_it_in_one_line_and_the_ticket_does_not(quoted: Quote) -> None:
    said = next(row for row in text(quoted, "").splitlines() if "learned" in row)
    assert said == "  learned    1 speed x0.51 of 2 runs, 1 pool x1.4; 11-17 to 11-20"
    assert "learned" not in line(quoted, "")


def test_without_earlier_runs_a_quote_has_the_bytes_that_it_had() -> None:
    plain = a_learned_quote(JOB, RunRecords())
    assert plain.learned is None
    assert "learned" not in quote_content(plain)
    assert "learned  " not in text(plain, "")
    assert Experience().digest not in quote_to_json(plain)


def test_a_budget_says_it_too() -> None:
    found = make_budget_quote(QuoteRequest(JOB, by(24)), Usd.parse("300"), learned_trade(JOB, RECORDS))
    assert isinstance(found, BudgetQuote)
    assert found.learned is not None
    assert found.learned.points == 1
    assert "  learned    1 speed x0.51 of 2 runs" in text(found, "")
    Draft202012Validator(quote_schema()).validate(json.loads(answers_to_json([found])))
